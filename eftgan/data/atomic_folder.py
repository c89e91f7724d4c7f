"""Atomic folders: written under a temporary name and renamed when whole."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from eftgan.errors import UserError
from eftgan.files import sync_folder

_LOCK = ".lock"
OURS = {"data.mdb", "lock.mdb", _LOCK, "train.lmdb", "test.lmdb", "train.lmdb.png", "test.lmdb.png"}


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a fresh temporary folder beside `path`, renamed to `path` on success and removed on failure.

    What killed runs left behind is removed first. An existing `path` is refused, or, with `overwrite`,
    replaced in the last moment, and only where it holds nothing but a prepared set.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(path.parent, path.name)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        with open(temporary / _LOCK, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held while the run lives: a leftover is known by its free lock
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            _swap_in(temporary, path, overwrite=overwrite)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {path} ({reason}); make room, or choose a folder you may write to") from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise a UserError where writing `path` would destroy something."""
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise UserError(f"{path} exists already; give --overwrite to replace it, or choose another name")
    if not path.is_dir() or {entry.name for entry in path.iterdir()} - OURS:
        raise UserError(f"{path} holds more than a prepared set and is left alone; choose another name")


def _swap_in(temporary: Path, path: Path, *, overwrite: bool) -> None:
    refuse_existing(path, overwrite=overwrite)  # another run may have finished meanwhile
    sync_folder(temporary)
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
        os.rename(path, old)
        os.rename(temporary, path)
        shutil.rmtree(old)
    else:
        os.rename(temporary, path)
    (path / _LOCK).unlink()  # not before the rename, or another run could take the folder for a leftover
    sync_folder(path.parent)


def remove_stale(parent: Path, name: str = "*") -> None:
    """Remove what killed runs left in `parent` of a folder of this name, or of any."""
    for leftover in parent.glob(f".{name}.*.tmp"):
        with contextlib.suppress(OSError):  # a live run holds the lock, or it is not ours to remove
            if not (leftover / _LOCK).exists() and time.time() - leftover.stat().st_mtime < 60:
                continue  # made this moment by another run
            with open(leftover / _LOCK, "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
