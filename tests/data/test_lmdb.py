"""Prepared sets: what is written is what is read, by any kind of worker, or it is refused by name."""

import contextlib
import json
import multiprocessing
import os
import pickle
import signal

import lmdb
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from eftgan.data.images import encode_jpeg
from eftgan.data.lmdb import LmdbImages, LsunImages, write_lmdb
from eftgan.data.stores import read_meta
from eftgan.errors import UserError

COUNT, SIZE = 37, 12


def pictures(count=COUNT, size=SIZE, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 3, size, size), dtype=np.uint8)


@pytest.fixture
def plain(tmp_path):
    write_lmdb(tmp_path / "plain.lmdb", ((p, None) for p in pictures()), size=SIZE, source="test")
    return tmp_path / "plain.lmdb"


@pytest.fixture
def labelled(tmp_path):
    pairs = [(p, i % 3) for i, p in enumerate(pictures())]
    write_lmdb(tmp_path / "labelled.lmdb", pairs, size=SIZE, labels=["a", "b", "c"], source="test")
    return tmp_path / "labelled.lmdb"


def test_raw_pixels_come_back_exactly_in_any_order(plain):
    images, expected = LmdbImages(plain), torch.from_numpy(pictures())
    assert len(images) == COUNT
    assert images.size == SIZE
    assert images.labels is None
    assert images.targets is None
    for index in [36, 0, 17, 17, -1]:
        assert torch.equal(images[index], expected[index])
    assert torch.equal(torch.stack(images.__getitems__([5, 3, 30])), expected[[5, 3, 30]])
    with pytest.raises(IndexError):
        images[COUNT]


def test_labels_come_with_the_images(labelled):
    images = LmdbImages(labelled)
    assert images.labels == ["a", "b", "c"]
    assert images.targets.dtype == torch.int64
    assert images.targets.tolist() == [i % 3 for i in range(COUNT)]
    picture, label = images[4]
    assert label == 1
    assert torch.equal(picture, torch.from_numpy(pictures()[4]))


def test_jpeg_sets_are_read_close_to_the_original(tmp_path):
    smooth = np.linspace(0, 255, 64).astype(np.uint8)[None, None, :].repeat(3, 0).repeat(64, 1)
    write_lmdb(tmp_path / "x", [(smooth, None), (encode_jpeg(smooth), None)], size=64, encoding="jpeg")
    images = LmdbImages(tmp_path / "x")
    assert torch.equal(images[0], images[1])
    assert (images[0].int() - torch.from_numpy(smooth).int()).abs().max() <= 4


def test_a_limit_spreads_over_the_whole_set_and_changes_the_digest(labelled):
    images = LmdbImages(labelled, limit=5)
    assert len(images) == 5
    assert images.digest != LmdbImages(labelled).digest
    assert torch.equal(images[1][0], torch.from_numpy(pictures()[COUNT // 5]))
    assert images.targets.tolist() == [i * COUNT // 5 % 3 for i in range(5)]


def test_the_digest_follows_the_content(tmp_path):
    def digest(name, seed, **options):
        pairs = [(p, None) for p in pictures(4, seed=seed)]
        return write_lmdb(tmp_path / name, pairs, size=SIZE, **options)["digest"]

    assert digest("a", 0, source="here") == digest("b", 0, source="there")
    assert digest("c", 1) != digest("a2", 0)


def test_the_map_grows_with_the_data(tmp_path):
    big = np.zeros((3, 512, 512), dtype=np.uint8)  # 110 of them exceed the first map of 64 MB
    meta = write_lmdb(tmp_path / "big", ((big + i, None) for i in range(110)), size=512)
    assert meta["length"] == 110
    assert int(LmdbImages(tmp_path / "big")[109].float().mean()) == 109


@pytest.mark.parametrize(
    ("context", "workers"),
    [
        (None, 0),
        ("fork", 2),
        ("fork", 4),
        ("spawn", 2),
        pytest.param("spawn", 4, marks=pytest.mark.slow),  # each spawned worker imports torch anew
    ],
)
def test_every_kind_and_number_of_workers_reads_the_same_bytes(labelled, context, workers):
    images, expected = LmdbImages(labelled), torch.from_numpy(pictures())
    images[0]  # the environment is open in the parent when the workers start
    loader = DataLoader(images, batch_size=10, num_workers=workers, multiprocessing_context=context)
    batches = list(loader)
    assert torch.equal(torch.cat([pixels for pixels, _ in batches]), expected)
    assert torch.equal(torch.cat([target for _, target in batches]), images.targets)
    assert torch.equal(images[7][0], expected[7])


@pytest.mark.parametrize("workers", [0, 2])
def test_two_datasets_on_one_path(plain, workers):
    twins = [LmdbImages(plain), LmdbImages(plain)]
    loaders = [
        DataLoader(t, batch_size=5, num_workers=workers, multiprocessing_context="fork" if workers else None)
        for t in twins
    ]
    for first, second in zip(*loaders, strict=True):
        assert torch.equal(first, second)
    both = torch.utils.data.ConcatDataset(twins)
    assert torch.equal(both[COUNT + 2], both[2])


def test_eight_forked_workers(plain):
    loader = DataLoader(LmdbImages(plain), batch_size=2, num_workers=8, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), torch.from_numpy(pictures()))


def read_again_after_killing_the_workers(folder):
    """Exit code 0 where a later epoch is right. Torch raises from a signal handler, at any line, per worker."""
    expected, interrupted = torch.from_numpy(pictures()), 0
    loader = DataLoader(LmdbImages(folder), batch_size=2, num_workers=2, multiprocessing_context="fork")
    try:
        iterator = iter(loader)
        next(iterator)
        for worker in iterator._workers:
            os.kill(worker.pid, signal.SIGKILL)
        list(iterator)
    except (RuntimeError, OSError, EOFError):  # or the pipe to a dead worker breaks first
        interrupted += 1
    for _ in range(3):
        with contextlib.suppress(RuntimeError):
            right = torch.equal(torch.cat(list(loader)), expected)
            os._exit(0 if right and interrupted else 1)
    os._exit(2)


def test_a_second_epoch_after_the_workers_were_killed(plain):
    LmdbImages(plain)[0]
    process = multiprocessing.get_context("fork").Process(target=read_again_after_killing_the_workers, args=(plain,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_an_open_set_can_be_pickled(plain):
    images = LmdbImages(plain)
    images[0]
    assert torch.equal(pickle.loads(pickle.dumps(images))[3], images[3])


def test_a_failing_writer_leaves_nothing(tmp_path):
    def samples():
        yield from ((p, None) for p in pictures())
        raise UserError("stop")

    with pytest.raises(UserError, match="stop"):
        write_lmdb(tmp_path / "x", samples(), size=SIZE)
    assert list(tmp_path.iterdir()) == []


def test_too_few_samples_are_refused(tmp_path):
    with pytest.raises(UserError, match="expected 5"):
        write_lmdb(tmp_path / "x", [(pictures()[0], None)], size=SIZE, total=5)
    with pytest.raises(UserError, match="at least one"):
        write_lmdb(tmp_path / "x", [], size=SIZE)
    assert list(tmp_path.iterdir()) == []


def test_a_finished_set_is_not_overwritten_unasked(plain):
    before = LmdbImages(plain).digest
    with pytest.raises(UserError, match="--overwrite"):
        write_lmdb(plain, [(pictures()[0], None)], size=SIZE)
    assert LmdbImages(plain).digest == before
    write_lmdb(plain, [(pictures()[5], None)], size=SIZE, overwrite=True)
    assert len(LmdbImages(plain)) == 1
    assert torch.equal(LmdbImages(plain)[0], torch.from_numpy(pictures()[5]))


def test_a_folder_with_other_files_is_never_overwritten(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="left alone"):
        write_lmdb(tmp_path / "home", [(pictures()[0], None)], size=SIZE, overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def test_leftovers_of_killed_runs_go_and_those_of_live_runs_stay(tmp_path):
    import fcntl

    dead, live = tmp_path / ".x.dead.tmp", tmp_path / ".x.live.tmp"
    for folder in (dead, live):
        folder.mkdir()
        (folder / ".lock").touch()
    with open(live / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_lmdb(tmp_path / "x", [(pictures()[0], None)], size=SIZE)
        assert not dead.exists()
        assert live.exists()


def bare_lmdb(folder, entries):
    with lmdb.open(str(folder), lock=False) as store, store.begin(write=True) as transaction:
        for key, content in entries:
            transaction.put(key, content)
    return folder


def test_lsun_form_is_read_directly(tmp_path):
    flat = np.full((3, 40, 56), 90, dtype=np.uint8)
    flat[:, :, :8] = flat[:, :, 48:] = 255  # the sides that the centre crop must lose
    folder = bare_lmdb(tmp_path / "lsun", [(b"%040x" % i, encode_jpeg(flat)) for i in range(6)])
    images = LsunImages(folder, size=20)
    assert len(images) == 6
    assert images[2].shape == (3, 20, 20)
    assert (images[2][:, 1:-1, 1:-1].int() - 90).abs().max() <= 6
    loader = DataLoader(images, batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), torch.stack(images.__getitems__(range(6))))
    with pytest.raises(UserError, match="data_prep lsun"):
        LmdbImages(folder)


def test_a_foreign_lmdb_is_refused_by_name(tmp_path):
    folder = bare_lmdb(tmp_path / "other", [(b"k", b"hello")])
    with pytest.raises(UserError, match=r"other.*without __meta__.*data_prep"):
        LmdbImages(folder)
    empty = bare_lmdb(tmp_path / "empty", [])
    with pytest.raises(UserError, match=r"empty.*without __meta__"):
        read_meta(empty)


def test_a_set_of_another_version_is_refused(tmp_path):
    meta = json.dumps({"format": "eftgan-images", "version": 99}).encode()
    with pytest.raises(UserError, match="version"):
        LmdbImages(bare_lmdb(tmp_path / "future", [(b"__meta__", meta)]))


@pytest.mark.parametrize("kept", [0, 100, 5000, 0.5, 0.99])
def test_a_truncated_file_is_refused_and_kills_nobody(tmp_path, kept):
    folder = tmp_path / "cut"
    write_lmdb(folder, [(p, None) for p in pictures(60, 40)], size=40)
    data = folder / "data.mdb"
    os.truncate(data, kept if isinstance(kept, int) else int(kept * data.stat().st_size))
    with pytest.raises(UserError, match=r"cut/data\.mdb"):
        LmdbImages(folder)


def test_a_missing_set_is_refused(tmp_path):
    with pytest.raises(UserError, match="no LMDB at"):
        LmdbImages(tmp_path / "nowhere")


def test_a_missing_entry_is_refused(plain):
    with lmdb.open(str(plain), lock=False) as store, store.begin(write=True) as transaction:
        transaction.delete(b"00000004")
    with pytest.raises(UserError, match="00000004 is missing"):
        LmdbImages(plain)[4]


def test_a_damaged_index_page_is_a_message_and_not_a_crash(tmp_path):
    folder = tmp_path / "hurt"
    write_lmdb(folder, [(p, None) for p in pictures(200, 16)], size=16)
    page, data = 4096, bytearray((folder / "data.mdb").read_bytes())
    for start in range(2 * page, len(data), page):
        if int.from_bytes(data[start + 10 : start + 12], "little") == 2:  # a leaf page
            data[start : start + 16] = b"\xff" * 16
    (folder / "data.mdb").write_bytes(data)
    with pytest.raises(UserError, match=r"hurt/data\.mdb is damaged"):
        LmdbImages(folder)[0]


def test_links_to_one_set_are_one_set(plain, tmp_path):
    (tmp_path / "link").symlink_to(plain)
    assert torch.equal(LmdbImages(tmp_path / "link")[1], LmdbImages(plain)[1])
    assert len(LmdbImages(plain / "data.mdb")) == COUNT
