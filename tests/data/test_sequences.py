"""Tasks name their data; what cannot be trained on is refused before training."""

import numpy as np
import pytest

from eftgan.data.lmdb import write_lmdb
from eftgan.data.sequences import check_sequence, data_record, open_images, recorded_path
from eftgan.errors import UserError


def small_set(path, size):
    pixels = np.zeros((3, size, size), dtype=np.uint8)
    write_lmdb(path, [(pixels, None)] * 10, size=size, source="folder raw/cats.tar")
    return str(path)


def test_shapes_open_with_the_margin_for_random_crops():
    images = open_images("shapes:stripes", size=32, seed=4, limit=10)
    assert len(images) == 10
    assert images.size == 38


def test_a_prepared_set_opens_by_its_path(tmp_path):
    images = open_images(small_set(tmp_path / "cats.lmdb", 38), size=32, limit=3)
    assert len(images) == 3
    assert images.size == 38


def test_a_set_too_small_for_the_training_size_is_refused_with_the_remedy(tmp_path):
    path = small_set(tmp_path / "cats.lmdb", 38)
    with pytest.raises(UserError) as caught:
        open_images(path, size=64, seed=0)
    for part in (path, "38x38", "64x64", f"python -m data_prep folder raw/cats.tar {path} --size 64"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["", "-cats", "cats and dogs", "a/b", "x" * 65, "naïve"])
def test_bad_task_names_are_refused(name):
    with pytest.raises(UserError, match="task name"):
        check_sequence(["cats", name])


def test_a_sequence_needs_tasks_with_different_names():
    check_sequence(["a", "b"])
    with pytest.raises(UserError, match=r"twice: a"):
        check_sequence(["a", "b", "a"])
    with pytest.raises(UserError, match="no task"):
        check_sequence([])


def test_missing_data_and_empty_limits_are_refused(tmp_path):
    with pytest.raises(UserError, match="no LMDB at"):
        open_images(str(tmp_path / "none.lmdb"), size=32, seed=0)
    with pytest.raises(UserError, match="limit 0"):
        open_images("shapes:discs", size=32, seed=0, limit=0)


def test_labels_are_dropped_when_a_labelled_set_is_opened_for_a_generator(tmp_path):
    pixels = np.arange(3 * 38 * 38, dtype=np.uint32).astype(np.uint8).reshape(3, 38, 38)
    write_lmdb(tmp_path / "pets.lmdb", [(pixels, 0), (pixels // 2, 1)], size=38, labels=["cat", "dog"])
    images = open_images(tmp_path / "pets.lmdb", size=32)
    assert (images[1].numpy() == pixels // 2).all()
    assert [tuple(image.shape) for image in images.__getitems__([0, 1])] == [(3, 38, 38)] * 2
    assert len(images.digest) == 64


def test_a_typed_path_is_found_again_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = data_record("data/cats.lmdb", "abc")
    assert record == {"typed": "data/cats.lmdb", "path": str(tmp_path / "data" / "cats.lmdb"), "digest": "abc"}
    assert recorded_path("data/cats.lmdb", record) == str(tmp_path / "data" / "cats.lmdb")
    assert recorded_path("elsewhere/cats.lmdb", record) == "elsewhere/cats.lmdb"
    assert data_record("shapes:discs")["path"] == "shapes:discs"
