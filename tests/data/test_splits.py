"""Class splits and labelled tasks from every kind of source."""

import io
import tarfile
import zipfile
from itertools import chain

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from eftgan.data import labelled
from eftgan.data.labelled import open_labelled
from eftgan.data.lmdb import write_lmdb
from eftgan.data.splits import ClassSource, labelled_tasks, split_classes
from eftgan.errors import UserError


def test_splits_are_seeded_permutations_in_equal_shares():
    shares = split_classes("CIFAR-100/10", 100, seed=0)
    assert [len(share) for share in shares] == [10] * 10
    assert sorted(chain(*shares)) == list(range(100))
    assert shares == split_classes("CIFAR-100/10", 100, seed=0)
    assert shares != split_classes("CIFAR-100/10", 100, seed=1)
    assert [*chain(*split_classes("CIFAR-100/20", 100, seed=0))] == [*chain(*shares)]
    assert split_classes("CIFAR-100/10", 100, seed=None)[1] == list(range(10, 20))
    assert split_classes("CIFAR-10", 10, seed=3) == [list(range(10))]


@pytest.mark.parametrize(
    ("notation", "classes", "message"),
    [
        ("CIFAR-100/7", 100, "do not divide into 7 tasks; choose from 1, 2, 4, 5"),
        ("CIFAR-100/10", 12, "speaks of 100 classes, but the data has 12"),
        ("flowers/0", 12, "do not divide into 0"),
        ("", 12, "NAME/TASKS"),
    ],
)
def test_impossible_splits_are_refused(notation, classes, message):
    with pytest.raises(UserError, match=message):
        split_classes(notation, classes, seed=0)


def test_shapes_become_tasks_with_local_labels():
    tasks = labelled_tasks([ClassSource("shapes/4", "shapes:12")], size=32, seed=0)
    assert [task.name for task in tasks] == ["shapes-1", "shapes-2", "shapes-3", "shapes-4"]
    assert len({name for task in tasks for name in task.classes}) == 12
    for task in tasks:
        assert task.train.images.shape == (300, 3, 32, 32)
        assert torch.bincount(task.train.targets).tolist() == [100] * 3
        assert torch.bincount(task.test.targets).tolist() == [25] * 3


def coded(split, index, number):
    """A flat picture whose colour tells split, class and number."""
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:] = (100 * (split == "train"), 40 * index, number)
    return pixels


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def tree_files(test="test", top=""):
    return {
        f"{top}{split}/{name}/{number}.png": png(coded(split, index, number))
        for split, count in (("train", 3), (test, 2))
        for index, name in enumerate(("ant", "bee", "cow", "dog"))
        for number in range(count)
    }


def write_tree(path, files):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    elif path.suffix == ".tar":
        with tarfile.open(path, "w") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    else:
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    return str(path)


def write_lmdbs(path):
    for split, count in (("train", 3), ("test", 2)):
        pairs = [(coded(split, c, n).transpose(2, 0, 1).copy(), c) for c in range(4) for n in range(count)]
        write_lmdb(path / f"{split}.lmdb", pairs, size=8, labels=["ant", "bee", "cow", "dog"])
    return str(path)


@pytest.fixture(params=["folder", "set.zip", "set.tar", "val", "lmdb"])
def source(request, tmp_path):
    path = tmp_path / request.param
    if request.param == "lmdb":
        return write_lmdbs(path)
    top = "set/" if request.param == "set.tar" else ""
    return write_tree(path, tree_files("val" if request.param == "val" else "test", top))


def test_every_kind_of_source_gives_the_same_tasks(source):
    tasks = labelled_tasks([ClassSource("animals/2", source)], size=8, seed=0)
    order = [*chain(*split_classes("animals/2", 4, seed=0))]
    assert [name for task in tasks for name in task.classes] == [("ant", "bee", "cow", "dog")[i] for i in order]
    for position, task in enumerate(tasks):
        assert task.train.targets.tolist().count(0) == 3
        for local in (0, 1):
            of_class = task.train.images[task.train.targets == local]
            assert set(of_class[:, 1].flatten().tolist()) == {40 * order[2 * position + local]}
            assert sorted(of_class[:, 2, 0, 0].tolist()) == [0, 1, 2]
        assert len(task.test) == 4
        assert set(task.test.images[:, 0].flatten().tolist()) == {0}


def test_large_sets_stay_where_they_are_and_read_alike(source, monkeypatch):
    (expected, _) = labelled_tasks([ClassSource("animals/2", source)], size=8, seed=0)
    monkeypatch.setattr(labelled, "IN_MEMORY_BYTES", 0)
    (lazy, _) = labelled_tasks([ClassSource("animals/2", source)], size=8, seed=0)
    assert lazy.train.images is None
    chosen = torch.tensor([5, 0, 3])
    for ours, theirs in zip(lazy.train.fetch(chosen), expected.train.fetch(chosen), strict=True):
        assert torch.equal(ours, theirs)
    loader = DataLoader(lazy.train, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat([images for images, _ in loader]), expected.train.images)


def test_sources_mix_in_one_sequence(tmp_path):
    sources = [
        ClassSource("animals", write_lmdbs(tmp_path / "animals")),
        ClassSource("shapes/4", "shapes:12", take=2),
    ]
    tasks = labelled_tasks(sources, size=8, seed=0)
    assert [task.name for task in tasks] == ["animals", "shapes-1", "shapes-2"]
    assert [len(task.classes) for task in tasks] == [4, 3, 3]
    with pytest.raises(UserError, match="used twice: animals"):
        labelled_tasks([sources[0], sources[0]], size=8, seed=0)
    with pytest.raises(UserError, match="cannot take 9"):
        labelled_tasks([ClassSource("shapes/4", "shapes:12", take=9)], size=8, seed=0)


def test_a_limit_keeps_every_class():
    train, test, _ = open_labelled("shapes:12", size=32, limit=24)
    assert torch.bincount(train.targets).tolist() == [2] * 12
    assert torch.bincount(test.targets).tolist() == [2] * 12


def test_torchvision_files_are_read_where_the_user_has_them(monkeypatch):
    from torchvision import datasets

    class Fake:
        def __init__(self, root, train, download):
            assert not download
            self.data = np.stack([coded("train" if train else "test", i % 2, i) for i in range(6)])
            self.targets, self.classes = [i % 2 for i in range(6)], ["x", "y"]

    monkeypatch.setattr(datasets, "CIFAR10", Fake)
    train, test, classes = open_labelled("torchvision:CIFAR10:somewhere", size=8)
    assert classes == ["x", "y"]
    assert torch.equal(train.images[3], torch.from_numpy(coded("train", 1, 3)).permute(2, 0, 1))
    assert test.images[:, 0].max() == 0
    resized, _, _ = open_labelled("torchvision:CIFAR10:somewhere", size=16)
    assert resized.images.shape == (6, 3, 16, 16)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("torchvision:CIFAR10:/nowhere", "does not hold torchvision's whole CIFAR10"),
        ("torchvision:CIFAR10", "expected torchvision:<Name>:<folder>"),
        ("torchvision:Kinetics:/x", "not supported"),
        ("/nowhere", "no labelled images at /nowhere; .*data_prep folder SOURCE /nowhere --splits train test"),
        ("data/cifar100", "no labelled images at .*data_prep cifar SOURCE data/cifar100 --classes 100"),
        ("my/CIFAR-10", "no labelled images at .*data_prep cifar SOURCE my/CIFAR-10 --classes 10"),
        ("data/tiny-imagenet", "no labelled images at .*data_prep tiny SOURCE data/tiny-imagenet"),
        ("shapes:many", "expected shapes:<number"),
        ("shapes:99", "20 classes"),
    ],
)
def test_bad_sources_are_refused(data, message):
    with pytest.raises(UserError, match=message):
        open_labelled(data, size=32)


def test_a_labelled_set_of_another_size_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(UserError, match=r"stores 8x8 .* wants 32x32.*--size 32 --exact"):
        open_labelled(write_lmdbs(tmp_path / "animals"), size=32)


def test_a_broken_image_in_a_tree_is_named(tmp_path):
    files = tree_files() | {"train/bee/1.png": b"not an image"}
    with pytest.raises(UserError, match=r"train/bee/1\.png is unreadable"):
        open_labelled(write_tree(tmp_path / "tree", files), size=8)
