"""Every data set's command on a small copy of its layout: the right images, crops, splits and labels."""

import io
import tarfile
import zipfile

import lmdb
import numpy as np
import pytest
import torch
from PIL import Image

from eftgan.data.images import encode_jpeg
from eftgan.data.lmdb import LmdbImages


def test_help_lists_the_data_sets_and_each_tells_where_layout_and_example(prep):
    code, out, _ = prep("--help")
    assert code == 0
    for name in ("cats", "cub", "lsun", "folder", "cifar", "svhn", "tiny"):
        assert name in out
        code, text, _ = prep(name, "--help")
        assert code == 0
        for heading in ("Where:", "Layout:", f"Example:  python -m data_prep {name}", "--max-broken"):
            assert heading in text


def test_cats_takes_the_cat_synsets_only(prep, picture, tmp_path):
    for index, synset in enumerate(("n02123045", "n02124075", "n00000001")):
        for number in range(3):
            picture(tmp_path / f"imagenet/train/{synset}/{synset}_{number}.JPEG", seed=10 * index + number)
    code, out, err = prep("cats", tmp_path / "imagenet", tmp_path / "cats.lmdb", "--workers", 0)
    assert code == 0, err
    assert "6 images of 76x76" in out
    assert "n02123159" in err
    code, out, _ = prep("cats", tmp_path / "imagenet", tmp_path / "o.lmdb", "--synsets", "n00000001")
    assert "3 images" in out


def bird_layout(root, boxes_and_splits):
    (root / "images/001.Wren").mkdir(parents=True)
    lines = {"images.txt": [], "bounding_boxes.txt": [], "train_test_split.txt": []}
    for key, (box, split) in enumerate(boxes_and_splits, 1):
        pixels = np.zeros((100, 160, 3), dtype=np.uint8)
        pixels[..., 0], pixels[..., 1] = np.arange(160)[None, :], np.arange(100)[:, None]  # colour = place
        Image.fromarray(pixels).save(root / f"images/001.Wren/{key}.png")
        lines["images.txt"].append(f"{key} 001.Wren/{key}.png")
        lines["bounding_boxes.txt"].append(f"{key} " + " ".join(f"{float(v)}" for v in box))
        lines["train_test_split.txt"].append(f"{key} {split}")
    for name, content in lines.items():
        (root / name).write_text("\n".join(content) + "\n")


def test_cub_crops_round_the_box_and_honours_the_split(prep, tmp_path):
    bird_layout(tmp_path / "CUB", [((60, 30, 40, 20), 1), ((0, 0, 40, 20), 0), ((60, 30, 20, 40), 1)])
    source, output = tmp_path / "CUB", tmp_path / "birds.lmdb"
    code, _, err = prep("cub", source, output, "--size", 32, "--workers", 0)
    assert code == 0, err
    images = LmdbImages(output)
    assert len(images) == 2
    red, green, _ = images[0].float()  # centre (80, 40), r = 30: columns 50..110, rows 10..70
    assert abs(red[:, 0].mean() - 50) < 2
    assert abs(red[:, -1].mean() - 109) < 2
    assert abs(green[0].mean() - 10) < 2
    assert abs(green[-1].mean() - 69) < 2
    for split, count in (("test", 1), ("all", 3)):
        prep("cub", source, tmp_path / split, "--split", split, "--workers", 0)
        assert len(LmdbImages(tmp_path / split)) == count
    red, green, _ = LmdbImages(tmp_path / "test")[0].float()  # centre (20, 10), cut to 50x40, then its centre
    assert abs(red[:, 0].mean() - 5) < 2
    assert green[0].mean() < 2


def test_lsun_reads_its_own_lmdb(prep, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (3, 50, 70), dtype=np.uint8)
    with lmdb.open(str(tmp_path / "tower_lmdb"), lock=False) as store, store.begin(write=True) as transaction:
        for i in range(7):
            transaction.put(b"%040x" % i, encode_jpeg(pixels))
    results = []
    for workers in (0, 2):
        output = tmp_path / f"{workers}.lmdb"
        code, _, err = prep("lsun", tmp_path / "tower_lmdb", output, "--size", 32, "--workers", workers)
        assert code == 0, err
        results.append(LmdbImages(output))
    assert len(results[0]) == 7
    assert results[0].digest == results[1].digest


@pytest.fixture
def tree(picture, tmp_path):
    for split, count in (("train", 3), ("test", 2)):
        for index, name in enumerate(("ant", "bee")):
            for number in range(count):
                path = tmp_path / f"tree/{split}/{name}/{number}.png"
                picture(path, size=(32, 32), seed=100 * index + number)
    return tmp_path / "tree"


def as_archive(tree, path):
    files = sorted(file for file in tree.rglob("*") if file.is_file())
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(tree))
    else:
        with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
            for file in files:
                archive.add(file, f"top/{file.relative_to(tree)}")
    return path


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz"])
@pytest.mark.parametrize("command", [["cifar"], ["svhn"], ["folder", "--exact", "--splits", "train", "test"]])
def test_trees_become_labelled_splits_with_exact_pixels(prep, tree, tmp_path, kind, command):
    source = tree if kind == "folder" else as_archive(tree, tmp_path / f"set.{kind}")
    name, *options = command
    code, _, err = prep(name, source, tmp_path / "out", "--size", 32, "--workers", 0, *options)
    assert code == 0, err
    train, test = LmdbImages(tmp_path / "out/train.lmdb"), LmdbImages(tmp_path / "out/test.lmdb")
    assert train.labels == test.labels == ["ant", "bee"]
    assert train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert test.targets.tolist() == [0, 0, 1, 1]
    original = np.asarray(Image.open(tree / "train/bee/1.png")).transpose(2, 0, 1).copy()
    assert torch.equal(train[4][0], torch.from_numpy(original))


def test_folder_labels_and_limit(prep, tree, tmp_path):
    code, _, err = prep("folder", tree / "train", tmp_path / "x", "--labels", "--limit", 2, "--workers", 0)
    assert code == 0, err
    images = LmdbImages(tmp_path / "x")
    assert images.labels == ["ant", "bee"]
    assert images.targets.tolist() == [0, 1]
    assert images.size == 76
    assert "enlarged" in err


def test_folder_stores_jpeg_above_64_px_and_either_on_demand(prep, tree, tmp_path):
    for size, options, encoding in ((128, [], "jpeg"), (64, [], "raw"), (32, ["--encoding", "jpeg"], "jpeg")):
        output = tmp_path / f"s{size}"
        prep("folder", tree, output, "--size", size, "--workers", 0, *options)
        images = LmdbImages(output)
        assert images.meta["encoding"] == encoding
        assert images[0].shape == (3, size * 76 // 64, size * 76 // 64)


def test_tiny_reads_its_annotations(prep, picture, tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for index, wnid in enumerate(("n1", "n2")):
        picture(root / f"train/{wnid}/images/{wnid}_0.JPEG", size=(64, 64), seed=index)
    for number in range(3):
        picture(root / f"val/images/val_{number}.JPEG", size=(64, 64), seed=number)
    annotations = ["val_0.JPEG\tn2\t0\t0\t62\t57", "val_1.JPEG\tn1\t0\t0\t1\t1", "val_2.JPEG\tn2\t0\t0\t1\t1"]
    (root / "val/val_annotations.txt").write_text("\n".join(annotations) + "\n")
    code, _, err = prep("tiny", root, tmp_path / "tiny", "--workers", 0)
    assert code == 0, err
    assert LmdbImages(tmp_path / "tiny/train.lmdb").targets.tolist() == [0, 1]
    test = LmdbImages(tmp_path / "tiny/test.lmdb")
    assert test.targets.tolist() == [1, 0, 1]
    assert test.size == 64
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn9\t0\n")
    code, _, err = prep("tiny", root, tmp_path / "tiny2", "--workers", 0)
    assert code == 2
    assert "line 1: class 'n9'" in err


def test_cifar_reads_torchvisions_files(prep, tmp_path, monkeypatch):
    from torchvision import datasets

    class Fake:
        def __init__(self, root, train, download):
            self.data = np.random.default_rng(train).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
            self.targets, self.classes = [0, 1, 0, 1], ["x", "y"]

    monkeypatch.setattr(datasets, "CIFAR100", Fake)
    (tmp_path / "raw/cifar-100-python").mkdir(parents=True)
    (tmp_path / "raw/cifar-100-python/train").touch()
    code, _, err = prep("cifar", tmp_path / "raw", tmp_path / "out", "--workers", 2)
    assert code == 0, err
    expected = torch.from_numpy(Fake("", True, False).data).permute(0, 3, 1, 2)
    images = LmdbImages(tmp_path / "out/train.lmdb")
    assert torch.equal(torch.stack([image for image, _ in images]), expected)
    assert images.targets.tolist() == [0, 1, 0, 1]


def test_torchvision_files_that_are_not_whole_are_refused(prep, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/train_32x32.mat").write_bytes(b"half")
    code, _, err = prep("svhn", tmp_path / "raw", tmp_path / "out")
    assert code == 2
    assert "does not hold torchvision's whole SVHN" in err
    assert not (tmp_path / "out").exists()


def test_check_and_info(prep, tree, tmp_path):
    prep("cifar", tree, tmp_path / "set", "--workers", 0)
    code, out, _ = prep("check", tmp_path / "set")
    assert code == 0
    assert out.count("digest right") == 2
    code, out, _ = prep("info", tmp_path / "set/train.lmdb", "--sheet", tmp_path / "sheet.png")
    assert code == 0
    assert "length: 6" in out
    assert "ant, bee" in out
    assert Image.open(io.BytesIO((tmp_path / "sheet.png").read_bytes())).width > 90


@pytest.mark.parametrize(("cut", "message"), [(0, "does not match its digest"), (1, "00000003 is damaged")])
def test_check_finds_a_changed_and_a_damaged_entry(prep, tree, tmp_path, cut, message):
    prep("folder", tree, tmp_path / "x", "--size", 32, "--workers", 0)
    with lmdb.open(str(tmp_path / "x"), lock=False) as store, store.begin(write=True) as transaction:
        transaction.put(b"00000003", bytes(3 * 38 * 38 - cut))
    code, _, err = prep("check", tmp_path / "x")
    assert code == 2
    assert message in err
    assert str(tmp_path / "x") in err
