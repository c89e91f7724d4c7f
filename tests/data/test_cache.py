"""A folder, an archive or LSUN's own LMDB is converted once; what changed is converted anew, what is bad is refused."""

import multiprocessing
import os
import shutil
import tarfile
import time
import zipfile
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from eftgan.data import cache, conversion, sources
from eftgan.data.cache import cache_folder, cached_set
from eftgan.data.images import encode_jpeg
from eftgan.data.lmdb import LmdbImages, LsunImages
from eftgan.data.sequences import data_record, open_images, recorded_path
from eftgan.errors import UserError

FORMS = ("folder", "zip", "tar", "tar.gz", "tgz")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EFTGAN_CACHE", str(tmp_path / "cache"))


def picture(path: Path, seed: int, size: int = 50) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((size, size)).save(path)


@pytest.fixture
def photos(tmp_path) -> Path:
    """Six pictures in two folders, and a file that is none."""
    for number in range(6):
        picture(tmp_path / f"photos/{number % 2}/{number}.png", number)
    (tmp_path / "photos/notes.txt").write_text("not an image")
    return tmp_path / "photos"


def packed(folder: Path, form: str) -> Path:
    """The same files as an archive, in another order than that of their names."""
    path = folder.parent / f"{folder.name}.{form}"
    files = sorted((file for file in folder.rglob("*") if file.is_file()), reverse=True)
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(folder))
    elif form != "folder":
        with tarfile.open(path, "w" if form == "tar" else "w:gz") as archive:
            for file in files:
                archive.add(file, file.relative_to(folder))
    return folder if form == "folder" else path


def settled(monkeypatch) -> None:
    """As if every file were older than the clock's resolution, so that how it looks is enough to know it."""
    monkeypatch.setattr(cache, "_SETTLED_S", -3600)


def sets() -> list[str]:
    return sorted(path.name for path in (cache_folder() / "sets").iterdir())


@pytest.mark.parametrize("form", FORMS)
def test_images_are_the_same_whatever_they_lie_in(photos, form, capsys):
    images = open_images(packed(photos, form), size=32)
    assert len(images) == 6
    assert images.size == 38
    first = np.asarray(Image.open(photos / "0/0.png").resize((38, 38), Image.Resampling.BICUBIC, box=(0, 0, 50, 50)))
    assert (images[0].numpy() == first.transpose(2, 0, 1)).all()
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert f"{packed(photos, form)}: 6 images, 38x38 pixels (1 other file left out) -> {cache_folder()}/sets/" in said


def test_every_form_gives_the_digest_that_data_prep_gives(photos, tmp_path):
    from data_prep.__main__ import main

    main(["folder", str(photos), str(tmp_path / "set.lmdb"), "--size", "32", "--workers", "0"])
    digests = {open_images(packed(photos, form), size=32).digest for form in FORMS}
    assert digests == {LmdbImages(tmp_path / "set.lmdb").digest}


def test_an_unchanged_folder_is_neither_converted_nor_read_again(photos, monkeypatch, capsys):
    settled(monkeypatch)
    first = cached_set(photos, size=32)
    monkeypatch.setattr(cache, "convert", None)
    monkeypatch.setattr(sources.Tree, "read", None)
    assert cached_set(photos, size=32) == first
    assert capsys.readouterr().out.splitlines()[1] == f"{photos}: as converted before, {first}"


def test_a_folder_that_was_only_touched_or_copied_is_read_but_not_converted_again(photos, tmp_path, monkeypatch):
    settled(monkeypatch)
    first = cached_set(photos, size=32)
    monkeypatch.setattr(cache, "convert", None)
    os.utime(photos / "0/0.png")
    assert cached_set(photos, size=32) == first
    (tmp_path / "copies").mkdir()
    assert cached_set(photos.rename(tmp_path / "copies/others"), size=32) == first


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "painted over"])
def test_a_changed_folder_makes_a_new_set(photos, monkeypatch, change):
    settled(monkeypatch)
    first = cached_set(photos, size=32)
    digest, facts = LmdbImages(first).digest, (photos / "0/2.png").stat()
    if change == "added":
        picture(photos / "0/6.png", 6)
    elif change == "removed":
        (photos / "0/2.png").unlink()
    elif change == "renamed":
        (photos / "0/2.png").rename(photos / "1/9.png")
    else:  # of the same size and time: only the system's own note of the change tells
        content = bytearray((photos / "0/2.png").read_bytes())
        Image.new("RGB", (50, 50)).save(photos / "0/2.png")
        black = (photos / "0/2.png").read_bytes()
        (photos / "0/2.png").write_bytes(black + bytes(len(content) - len(black)))
        os.utime(photos / "0/2.png", ns=(facts.st_atime_ns, facts.st_mtime_ns))
        assert (photos / "0/2.png").stat().st_mtime_ns == facts.st_mtime_ns
    second = cached_set(photos, size=32)
    assert second != first
    assert LmdbImages(second).digest != digest
    assert len(sets()) == 2


def test_a_file_that_changed_this_moment_is_read_again_however_it_looks(photos):
    cached_set(photos, size=32)
    assert not (cache_folder() / "known").exists()


def test_size_and_limit_have_sets_of_their_own(photos):
    assert [LmdbImages(cached_set(photos, size=size)).size for size in (32, 64)] == [38, 76]
    few = open_images(photos, size=32, limit=3)
    assert len(few) == 3
    assert (few[1] == open_images(photos, size=32)[2]).all()
    assert len(sets()) == 3
    assert open_images(photos, size=128)._encoding == "jpeg"


def lsun(folder: Path) -> Path:
    with lmdb.open(str(folder), lock=False) as store, store.begin(write=True) as transaction:
        for number in range(5):
            pixels = np.random.default_rng(number).integers(0, 255, (3, 50, 70), dtype=np.uint8)
            transaction.put(b"%040x" % number, encode_jpeg(pixels))
    return folder


def test_lsuns_own_lmdb_is_converted_and_runs_begun_without_that_read_it_as_it_is(tmp_path, capsys):
    folder = lsun(tmp_path / "tower_train_lmdb")
    images = open_images(folder, size=32)
    direct = LsunImages(folder, size=38)
    assert images.folder != folder
    assert [(a == b).all().item() for a, b in zip(images, direct, strict=True)] == [True] * 5
    assert "5 images" in capsys.readouterr().out
    assert open_images(folder, size=32, digest=direct.digest).folder == folder
    assert open_images(folder, size=32, digest=images.digest).folder == images.folder


def test_a_run_keeps_the_images_that_it_was_started_with(photos):
    images = open_images(photos, size=32)
    record = data_record(str(photos), images.digest, images.folder)
    (photos / "0/0.png").unlink()
    assert recorded_path(str(photos), record) == str(images.folder)
    cache_folder().rename(cache_folder().with_name("gone"))
    assert recorded_path(str(photos), record) == str(photos)


def test_a_damaged_set_is_made_again(photos, monkeypatch):
    settled(monkeypatch)
    first = cached_set(photos, size=32)
    whole = (first / "data.mdb").read_bytes()
    (first / "data.mdb").write_bytes(whole[:20_000])
    assert cached_set(photos, size=32) == first
    assert (first / "data.mdb").read_bytes() == whole


def test_what_killed_conversions_left_is_cleared_and_what_lives_is_not(photos):
    import fcntl

    (cache_folder() / "sets").mkdir(parents=True)
    for name in ("dead", "alive"):
        (cache_folder() / f"sets/.{name}-32-0.lmdb.x.tmp").mkdir()
        (cache_folder() / f"sets/.{name}-32-0.lmdb.x.tmp/.lock").touch()
    with open(cache_folder() / "sets/.alive-32-0.lmdb.x.tmp/.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = cached_set(photos, size=32)
        assert sets() == [".alive-32-0.lmdb.x.tmp", made.name]


def test_images_that_change_while_they_are_converted_are_refused(photos, monkeypatch):
    convert = cache.convert

    def meddled(*args, **options):
        time.sleep(0.02)  # the clock of some file systems has steps of ten milliseconds
        picture(photos / "1/5.png", 77)
        return convert(*args, **options)

    monkeypatch.setattr(cache, "convert", meddled)
    with pytest.raises(UserError, match=r"photos changed while its images were converted; run the same command"):
        cached_set(photos, size=32)
    assert sets() == []


def ask(barrier, answers, photos) -> None:
    barrier.wait()
    answers.put(str(cached_set(photos, size=32)))


def test_of_several_processes_one_converts_and_the_others_wait_even_if_one_reads_a_copy(photos, tmp_path, capfd):
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(3), context.Queue()
    places = (photos, photos, Path(shutil.copytree(photos, tmp_path / "copies/photos")))
    workers = [context.Process(target=ask, args=(barrier, answers, place)) for place in places]
    for worker in workers:
        worker.start()
    found = {answers.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(found) == len(sets()) == 1
    assert capfd.readouterr().out.count("6 images, 38x38 pixels") == 1


def hang(started, photos) -> None:
    conversion.fit_square = lambda *args: started.set() or time.sleep(600)
    cached_set(photos, size=32)


def test_when_the_one_that_converts_is_killed_the_one_that_waits_goes_on(photos, capfd):
    context = multiprocessing.get_context("fork")
    started, barrier, answers = context.Event(), context.Barrier(1), context.Queue()
    first = context.Process(target=hang, args=(started, photos))
    first.start()
    assert started.wait(60)
    second = context.Process(target=ask, args=(barrier, answers, photos))
    second.start()
    while "another process converts it; waiting" not in capfd.readouterr().err:
        time.sleep(0.01)
    first.kill()
    made = Path(answers.get(timeout=60))
    second.join()
    assert len(LmdbImages(made)) == 6
    assert sets() == [made.name], "and what the first one left is cleared"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "data: no images in it; a task needs more (.jpg"),
        (["1.png"], "data: only one image in it; a task needs more"),
        (["a.txt", "b/c.pdf"], "data: no images in it, and 2 other files such as a.txt; a task needs more"),
        (["1.png", "a.txt"], "data: only one image in it, and 1 other file such as a.txt"),
        (["1.png", "2.png", "broken.png"], "1 of 3 images are unreadable (33.3 %, allowed 1 %); nothing was written;"),
        ([".hidden.png", "__MACOSX/1.png"], "data: no images in it; a task"),
    ],
)
@pytest.mark.parametrize("form", ["folder", "zip", "tgz"])
def test_what_cannot_be_a_task_is_refused_in_one_line(tmp_path, monkeypatch, files, message, form):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for name in files:
        if name.endswith(".png") and name != "broken.png":
            picture(Path("data", name), 0)
        else:
            Path("data", name).parent.mkdir(exist_ok=True)
            Path("data", name).write_text("x")
    place = packed(Path("data"), form)
    with pytest.raises(UserError) as caught:
        cached_set(place, size=32)
    assert message.replace("data:", f"{place}:") in str(caught.value)
    assert "\n" not in str(caught.value)
    if "broken.png" in files:
        assert f"remove them in {place}: broken.png: UnidentifiedImageError" in str(caught.value)
    folder = cache_folder() / "sets"
    assert not folder.exists() or not list(folder.iterdir())


def test_a_cache_that_cannot_be_written_is_said_with_the_remedy(photos, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EFTGAN_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set EFTGAN_CACHE to a folder"):
        cached_set(photos, size=32)


def test_many_images_are_converted_by_workers_to_the_same_set(photos, monkeypatch):
    alone = LmdbImages(cached_set(photos, size=32)).digest
    monkeypatch.setattr(cache, "_FEW", 2)
    monkeypatch.setenv("EFTGAN_CACHE", str(photos.parent / "other"))
    assert LmdbImages(cached_set(photos, size=32)).digest == alone
