"""Images as people have them: a folder, an archive, LSUN's own LMDB. What is in it, how it looks, what to convert."""

import functools
import hashlib
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from eftgan.data.conversion import Job, LoadEntry, LoadFromTree
from eftgan.data.images import IMAGE_SUFFIXES, is_hidden_name
from eftgan.data.spread import spread
from eftgan.data.stores import is_lmdb, lmdb_folder, lsun_keys
from eftgan.data.trees import Tree, open_tree
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.names import counted
from eftgan.progress import progress_bar


class Source(ABC):
    """What can be converted to a set; `limit` keeps so many of its images, evenly spaced."""

    command = "folder"  # of data_prep, which makes the same set

    def __init__(self, typed: str, path: Path, limit: int | None) -> None:
        self.typed, self.path, self.limit = typed, path, limit
        self.opened_at = time.time()

    @abstractmethod
    def files(self) -> list[Path]:
        """All that its content depends on."""

    @functools.cached_property
    def content(self) -> str:
        """A digest of all that will be read."""
        (file,) = self.files()
        return file_digest(file)

    @abstractmethod
    def job(self) -> Job:
        """The images to convert, two at least."""

    def other_files(self) -> list[str]:
        """What is in it besides images."""
        return []

    @functools.cached_property
    def looked(self) -> tuple[str, int]:
        """How it looked when someone first asked, and when any of its files had changed last (nanoseconds)."""
        return self._looks()

    def _looks(self) -> tuple[str, int]:
        """A digest of what changes when a file does, found without reading any."""
        digest, newest = hashlib.sha256(), 0
        for path in self.files():
            facts = _facts(path)
            digest.update(f"{path}\0{facts}\n".encode("utf-8", "surrogateescape"))
            newest = max(newest, facts[-1])
        return digest.hexdigest(), newest

    def refuse_changes(self) -> None:
        """Refuse what changed since it was first looked at."""
        if self._looks() != self.looked:
            raise UserError(f"{self.typed} changed while its images were converted; run the same command again")

    def _chosen(self, names: list[Any]) -> list[tuple[Any, None]]:
        if len(names) < 2:
            others = self.other_files()
            besides = f", and {counted(len(others), 'other file')} such as {others[0]}" if others else ""
            raise UserError(
                f"{self.typed}: {'only one image' if names else 'no images'} in it{besides}; a task needs more "
                f"({', '.join(IMAGE_SUFFIXES)})"
            )
        return [(names[i], None) for i in spread(len(names), self.limit)]


class LsunSource(Source):
    """LSUN's own LMDB."""

    command = "lsun"

    def files(self) -> list[Path]:
        return [self.path / "data.mdb"]

    def job(self) -> Job:
        return Job(self._chosen(lsun_keys(self.path)), LoadEntry(str(self.path)))


class TreeSource(Source):
    """A folder, or an archive, which is opened only to be converted."""

    @functools.cached_property
    def tree(self) -> Tree:
        return open_tree(self.path)

    def other_files(self) -> list[str]:
        images = set(self.tree.images())
        return [name for name in self.tree.names if name not in images and not is_hidden_name(name)]

    def files(self) -> list[Path]:
        return [self.path / name for name in self._names()] if self.path.is_dir() else [self.path]

    def _names(self) -> list[str]:
        names = self.tree.images()
        return [names[i] for i in spread(len(names), self.limit)]

    @functools.cached_property
    def content(self) -> str:
        if not self.path.is_dir():
            return super().content
        digest = hashlib.sha256()
        for name in progress_bar(self._names(), desc=f"{self.path.name}, reading", unit="img", leave=False):
            try:
                own = hashlib.sha256(self.tree.read(name)).hexdigest()
            except (OSError, ValueError) as error:  # it is told when it is converted
                own = f"unreadable: {error}"
            digest.update(f"{name}\0{own}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def job(self) -> Job:
        return Job(self._chosen(self.tree.images()), LoadFromTree(self.tree))


def open_source(data: str | os.PathLike, limit: int | None = None) -> Source:
    """A folder, .tar, .tar.gz or .zip of images, or LSUN's own LMDB."""
    path = lmdb_folder(data)
    if not os.path.exists(path):  # unlike a Path's, it takes a name that is too long for one that is not there
        raise UserError(f"no LMDB at {data}, and no folder, .tar, .tar.gz or .zip of images either; check the path")
    return (LsunSource if is_lmdb(path) else TreeSource)(str(data), path, limit)


def _facts(path: Path) -> list[int]:
    try:
        facts = path.stat()
    except OSError:
        return [0, 0, 0, 0]
    return [facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns]  # the last is set by the system alone
