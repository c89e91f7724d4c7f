"""Image sets, images, archives and Inception weights that are damaged or hostile."""

import io
import json
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from eftgan.data.lmdb import write_lmdb

META = {"format": "eftgan-images", "version": 1, "length": 20, "size": 38, "encoding": "raw", "labels": None}
META |= {"source": "", "digest": "x"}
LIMIT = Image.MAX_IMAGE_PIXELS


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that claims a size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def store(path: Path, entries: dict[bytes, bytes]) -> None:
    path.mkdir()
    with lmdb.open(str(path), lock=False) as opened, opened.begin(write=True) as transaction:
        for key, content in entries.items():
            transaction.put(key, content)


def picture(size: int = 40) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), "red").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "not of this version"),
        ({"version": 99}, "not of this version"),
        ({"length": -1}, "no usable length"),
        ({"length": "many"}, "no usable length"),
        ({"length": 10**15}, "no usable length"),
        ({"size": 0}, "no usable size"),
        ({"size": None}, "no usable size"),
        ({"size": 16}, "too small to train"),
        ({"encoding": "pickle"}, "no usable encoding"),
        ({"labels": 5}, "no usable labels"),
        ({"labels": ["a"]}, "__targets__ is damaged"),
        ({"digest": None}, "no usable digest"),
        ({}, "entry 000000"),  # well described, and nothing is there
    ],
)
def test_a_set_that_describes_itself_wrongly_is_refused(call, changes, message):
    store(call.place / "set.lmdb", {b"__meta__": json.dumps(META | changes).encode()})
    if changes:
        call.train(message, "tasks.0.data=set.lmdb")
    else:
        call.refuses(message, "data_prep", "check", "set.lmdb")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable LMDB"),
        (b"garbage" * 3000, "not a readable LMDB"),
        (None, "cut short"),
    ],
)
def test_a_damaged_set_is_refused(call, content, message):
    images = (np.zeros((3, 38, 38), dtype=np.uint8) for _ in range(20))
    write_lmdb(call.place / "set.lmdb", ((image, None) for image in images), size=38)
    data = call.place / "set.lmdb" / "data.mdb"
    data.write_bytes(data.read_bytes()[:20_000] if content is None else content)
    call.train(message, "tasks.0.data=set.lmdb")


def test_entries_of_the_wrong_size_are_named(call):
    entries = {b"%08d" % i: b"short" for i in range(20)}
    store(call.place / "set.lmdb", {**entries, b"__meta__": json.dumps(META).encode()})
    call.refuses("entry 00000000 is damaged", "data_prep", "check", "set.lmdb")


def test_an_lsun_set_with_a_bomb_is_refused(call):
    store(call.place / "lsun", {b"a": b"\xff\xd8 no JPEG", b"b": png(LIMIT, 3)})
    call.refuses("is damaged", "data_prep", "check", "lsun")


BOMBS = {"beyond the limit": png(LIMIT, 3), "just above it": png(LIMIT // 1000 + 1, 1001)}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_picture_of_too_many_pixels_is_not_unpacked(call, kind):
    (call.place / "raw").mkdir()
    (call.place / "raw" / "bomb.png").write_bytes(BOMBS[kind])
    call.refuses("1 of 1 images are unreadable", "data_prep", "folder", "raw", "x.lmdb", "--workers", "0")
    (call.place / "raw" / "whole.png").write_bytes(picture())
    call.refuses("bomb.png can't be read", "eftgan", "fid", "raw", "raw", "--features", "random")


@pytest.mark.parametrize("name", ["../x.png", "/../x.png", "a/../../x.png", ".hidden.png", "x.png.exe"])
def test_names_that_lead_out_of_an_archive_are_no_images(call, name):
    with tarfile.open(call.place / "x.tar", "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(picture())
        archive.addfile(member, io.BytesIO(picture()))
    with zipfile.ZipFile(call.place / "x.zip", "w") as archive:
        archive.writestr(name, picture())
    for archive in ("x.tar", "x.zip"):
        call.refuses("no images in", "data_prep", "folder", archive, "x.lmdb", "--workers", "0")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_an_archive_are_no_images(call, kind):
    with tarfile.open(call.place / "x.tar", "w") as archive:
        member = tarfile.TarInfo("x.png")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    call.refuses("no images in", "data_prep", "folder", "x.tar", "x.lmdb", "--workers", "0")


def test_a_zip_member_that_unpacks_to_gigabytes_is_not_read(call):
    with zipfile.ZipFile(call.place / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.png", b"")
    content = (call.place / "x.zip").read_bytes()
    place = content.index(b"PK\x01\x02") + 24  # the directory's size of the unpacked file
    (call.place / "x.zip").write_bytes(content[:place] + struct.pack("<I", 2**32 - 2) + content[place + 4 :])
    call.refuses("unpacks to", "data_prep", "folder", "x.zip", "x.lmdb", "--workers", "0")


def test_a_list_that_names_files_outside_the_data_reads_none(call):
    raw = call.place / "birds"
    (raw / "images").mkdir(parents=True)
    (call.place / "secret.png").write_bytes(picture())
    (raw / "images" / "own.png").write_bytes(picture())
    (raw / "images.txt").write_text("1 ../../secret.png\n")
    (raw / "bounding_boxes.txt").write_text("1 0 0 40 40\n")
    (raw / "train_test_split.txt").write_text("1 1\n")
    call.refuses("is not in", "data_prep", "cub", "birds", "x.lmdb", "--workers", "0")


def test_a_text_file_of_the_data_that_is_no_text_is_named(call):
    (call.place / "birds").mkdir()
    (call.place / "birds" / "images.txt").write_bytes(b"\xff\xfe\x00")
    call.refuses("images.txt cannot be read as text", "data_prep", "cub", "birds", "x.lmdb")


@pytest.mark.parametrize("content", [None, b"", b"\x80\x04cos\nsystem\n(S'true'\ntR.", b"PK\x03\x04"])
def test_other_inception_weights_are_refused_before_they_are_loaded(call, run, content):
    if content is not None:
        (call.place / "w.pth").write_bytes(content)
    call.refuses("Inception weights", "eftgan", "evaluate", "run", "--weights", "w.pth")
    (call.place / "raw").mkdir()
    call.refuses("Inception weights", "eftgan", "fid", "raw", "raw", "--weights", "w.pth")
