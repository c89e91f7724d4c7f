"""Atomic files: a reader sees the old content or the new, never half of it."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it is flushed to disk and renamed to `path` on success."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


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
