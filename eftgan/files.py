"""Atomic files: a reader sees the old content or the new, never half of it, whenever the process ends."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eftgan.errors import UserError

PATIENCE_S = 60.0  # for what another host wrote
_STARTED = time.time()
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]  # machines that share a folder number alike
_TEMPORARY = re.compile(r"\..+\.(\d+)(?:-([0-9a-f]{8}))?\.tmp")  # .NAME.PROCESS-HOST.tmp
_ABANDONED_S = 24 * 3600  # age at which another host's temporary file is taken for a leftover


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it is flushed to disk and renamed to `path` on success."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{_HOST}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror or error}); what was written before is whole: "
            "make room, or make the folder writable, and run the same command again"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left in `folder` and below it."""
    for path in folder.rglob(".*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if found and not _is_in_work(path, int(found[1]), found[2] or _HOST):
                path.unlink()


def _is_in_work(path: Path, process: int, host: str) -> bool:
    if host != _HOST:  # whose processes cannot be asked for
        return time.time() - path.stat().st_mtime < _ABANDONED_S
    if process == os.getpid():  # or a process of an earlier container, where numbers come again
        return path.stat().st_mtime >= _STARTED
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def require_files(sizes: Mapping[Path, int]) -> None:
    """Wait until files that another host wrote are seen here in their sizes; a UserError where they are not."""
    for path, size in sizes.items():
        if not wait_until(functools.partial(_has_size, path, size), path):
            raise UserError(
                f"{path} is not as the first process sees it; all hosts need one folder on a file system that they "
                "share"
            )


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def wait_until(is_seen: Callable[[], bool], path: Path) -> bool:
    """Wait for what another host did to a file: a network file system may show what was there a minute ago."""
    for attempt in range(int(PATIENCE_S / 0.2)):
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # makes it look again
            if is_seen():
                return True
        if attempt == 25:
            print(f"waiting for {path} as another host wrote it", file=sys.stderr, flush=True)
        time.sleep(0.2)
    return False


@contextlib.contextmanager
def exclusive(path: str | os.PathLike) -> Iterator[None]:
    """Wait until no other process is inside a block for the same file; a process that dies leaves it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike, content: str) -> None:
    write_bytes(path, content.encode("utf-8"))


def write_json(path: str | os.PathLike, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: str | os.PathLike) -> str:
    """sha256 of a file's bytes."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def settled_digest(path: str | os.PathLike) -> str:
    """The same for a file that is replaced rather than changed: read once, until its size or time is another."""
    facts = os.stat(path)
    return _digest_as_of(os.fspath(path), facts.st_ino, facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _digest_as_of(path: str, *_facts: int) -> str:
    return file_digest(path)
