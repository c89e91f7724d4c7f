"""Archives are read in place and in any order, packed by gzip or not, and damaged ones are refused by name."""

import gzip
import io
import pickle
import random
import tarfile

import pytest

from eftgan.data import packed
from eftgan.data.trees import open_tree
from eftgan.errors import UserError


@pytest.fixture
def contents() -> dict[str, bytes]:
    rng = random.Random(0)
    return {f"top/{number:03d}.jpg": rng.randbytes(rng.randrange(1, 60_000)) for number in range(60)}


def tar(contents: dict[str, bytes], mode: str = "w:gz") -> bytes:
    """A tar in another order than that of the names."""
    buffer, names = io.BytesIO(), sorted(contents)
    random.Random(1).shuffle(names)
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name in names:
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(contents[name])
            archive.addfile(member, io.BytesIO(contents[name]))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tgz", "x.tar"])  # what it is shows in its first bytes
def test_a_packed_tar_is_read_in_any_order(tmp_path, contents, name, monkeypatch):
    monkeypatch.setattr(packed, "_SPACING", 100_000)
    monkeypatch.setattr(packed, "_MOST_PLACES", 5)
    (tmp_path / name).write_bytes(tar(contents))
    tree = open_tree(tmp_path / name)
    assert tree.images() == sorted(contents)
    for order in (sorted(contents), sorted(contents, reverse=True), random.Random(2).sample(sorted(contents), 60)):
        assert all(tree.read(name) == contents[name] for name in order)
    again = pickle.loads(pickle.dumps(tree))
    assert again.read("top/031.jpg") == contents["top/031.jpg"]


def test_streams_behind_each_other_and_zeros_at_the_end_are_one_archive(tmp_path, contents):
    plain = tar(contents, "w")
    cut = len(plain) // 3
    (tmp_path / "x.tgz").write_bytes(gzip.compress(plain[:cut]) + gzip.compress(plain[cut:]) + bytes(5000))
    tree = open_tree(tmp_path / "x.tgz")
    assert {name: tree.read(name) for name in tree.names} == contents


@pytest.mark.parametrize("damage", ["cut", "end", "middle", "text", "not a tar"])
def test_a_damaged_one_is_refused_by_name(tmp_path, contents, damage):
    whole = tar(contents)
    bad = {
        "cut": whole[: len(whole) // 2],
        "end": whole[:-4],
        "middle": whole[:9000] + b"xxxx" + whole[9004:],
        "text": b"text" * 1000,
        "not a tar": gzip.compress(b"text" * 1000),
    }
    (tmp_path / "x.tar.gz").write_bytes(bad[damage])
    with pytest.raises(UserError, match=r"x\.tar\.gz cannot be read as a tar.*fetch it again"):
        open_tree(tmp_path / "x.tar.gz")


def test_what_grows_beyond_measure_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_HARMLESS", 1 << 16)
    (tmp_path / "x.tgz").write_bytes(tar({"zeros.jpg": bytes(1 << 22)}))
    with pytest.raises(UserError, match="unpacks to more than 100 times its size"):
        open_tree(tmp_path / "x.tgz")
