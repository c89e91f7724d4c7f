"""LMDB environments and the meta entry: what the readers and data_prep's commands stand on.

An environment must not be used after a fork, cannot be pickled, and may be open once per process and path.
So there is one per (process, path), opened when it is first needed and read-only without a lock file.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb

from eftgan.errors import UserError

FORMAT, VERSION = "eftgan-images", 1
META, TARGETS = b"__meta__", b"__targets__"


def entry_key(index: int) -> bytes:
    """Zero-padded, so that LMDB's order is the order of the images."""
    return b"%08d" % index


_environments: dict[tuple[int, str, int], lmdb.Environment] = {}  # by process id, path, inode


@contextlib.contextmanager
def reading(folder: Path, *, buffers: bool = False) -> Iterator["lmdb.Transaction[Any]"]:
    """A read transaction on this process's environment of `folder`; damage becomes a UserError."""
    try:
        environment = _environment(folder)
        with environment.begin(buffers=True) if buffers else environment.begin() as transaction:
            yield transaction
    except lmdb.Error as error:
        raise UserError(f"{folder / 'data.mdb'} is damaged ({error}); make or fetch it again") from error


def _environment(folder: Path) -> lmdb.Environment:
    data = folder / "data.mdb"
    try:
        key = (os.getpid(), str(folder), data.stat().st_ino)
    except OSError as error:
        remedy = "check the path, or make a set: python -m data_prep --help"
        raise UserError(f"no LMDB at {folder}: it has no data.mdb; {remedy}") from error
    if key not in _environments:
        # The binding refuses a path, or a moved file, that this process, or before the fork its parent, has open.
        for other in [other for other in _environments if other[0] != key[0] or set(other[1:]) & set(key[1:])]:
            _environments.pop(other).close()
        _environments[key] = _open(folder, data)
    return _environments[key]


def _open(folder: Path, data: Path) -> lmdb.Environment:
    try:
        store = lmdb.open(str(folder), readonly=True, lock=False, readahead=False, create=False)
        needed = (store.info()["last_pgno"] + 1) * store.stat()["psize"]
    except (lmdb.Error, OSError) as error:
        raise UserError(f"{data} is not a readable LMDB ({error}); make or fetch it again") from error
    if data.stat().st_size < needed:  # reading past the end of the map would kill the process
        store.close()
        raise UserError(f"{data} is cut short: {data.stat().st_size} of {needed} bytes; make or fetch it again")
    return store


def lmdb_folder(path: str | os.PathLike) -> Path:
    """The folder of an LMDB, given that folder or the data.mdb in it; one spelling for every way to it."""
    try:
        path = Path(path).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{str(path)!r} is not a usable path ({error})") from error
    return path.parent if path.name == "data.mdb" else path


def is_lmdb(path: str | os.PathLike) -> bool:
    """Whether there is an LMDB of some form."""
    return os.path.isfile(lmdb_folder(path) / "data.mdb")


def read_meta(path: str | os.PathLike) -> dict[str, Any] | None:
    """The set's meta; None for an LMDB in LSUN's own form; a UserError for any other."""
    folder = lmdb_folder(path)
    with reading(folder) as transaction:
        content = transaction.get(META)
        if content is None:
            first = next(iter(transaction.cursor()), (b"", b""))[1]
            if first[:2] == b"\xff\xd8" or (first[:4] == b"RIFF" and first[8:12] == b"WEBP"):
                return None
            raise UserError(
                f"{folder} is an LMDB without {META.decode()} and not in LSUN's form (key -> JPEG or WebP); "
                "make a set from the raw images with: python -m data_prep folder"
            )
    try:
        meta = json.loads(content)
        known = meta["format"] == FORMAT and meta["version"] == VERSION
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise UserError(f"{folder}: {META.decode()} is not of this version; make the set again with data_prep")
    _check_meta(folder, meta)
    return meta


def _check_meta(folder: Path, meta: dict[str, Any]) -> None:
    """The readers rely on these; an entry that some other program wrote may lack them."""
    labels, wanted = meta.get("labels"), {"length": int, "size": int, "encoding": str, "source": str, "digest": str}
    wrong = [key for key, kind in wanted.items() if not isinstance(meta.get(key), kind)]
    wrong += [
        key for key, most in (("length", 10**8), ("size", 2**14)) if key not in wrong and not 0 < meta[key] <= most
    ]
    wrong += ["encoding"] * (meta.get("encoding") not in ("raw", "jpeg"))
    if labels is not None and not (isinstance(labels, list) and all(isinstance(name, str) for name in labels)):
        wrong.append("labels")
    if wrong:
        raise UserError(
            f"{folder}: {META.decode()} has no usable {wrong[0]} ({meta.get(wrong[0])!r}); make the set again"
        )


def lsun_keys(path: str | os.PathLike) -> list[bytes]:
    """All keys of an LMDB in LSUN's form, in its order. Values are not touched, so this is fast."""
    folder = lmdb_folder(path)
    if read_meta(folder) is not None:
        raise UserError(f"{folder} is a prepared set already, not LSUN's own LMDB; use it as it is")
    with reading(folder) as transaction:
        return list(transaction.cursor().iternext(keys=True, values=False))


def read_entry(path: str | os.PathLike, key: bytes) -> bytes:
    """The bytes behind one key."""
    with reading(lmdb_folder(path)) as transaction:
        return transaction.get(key, b"")
