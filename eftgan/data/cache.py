"""Images as people have them (a folder, an archive, LSUN's own LMDB), converted to an LMDB set once and then reused.

CACHE/sets/photos-64-0123456789abcdef.lmdb    by the content of what was read, and the size
CACHE/known/...                               how a source looked (names, sizes, times) -> its set
CACHE is $EFTGAN_CACHE, else eftgan/ in $XDG_CACHE_HOME or ~/.cache. All of it may be deleted: it is made again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.data.atomic_folder import remove_stale
from eftgan.data.conversion import DEFAULT_WORKERS, Job, Tally, convert, default_encoding, stored_size
from eftgan.data.sources import Source, open_source
from eftgan.data.stores import read_meta
from eftgan.errors import UserError
from eftgan.files import write_json
from eftgan.names import counted, plain_name

_VERSION = 1  # of the way images are converted: another one makes other sets
_FEW = 64  # images that are converted sooner than workers start
_SETTLED_S = 2.0  # what changed since may change again and look the same, as clocks have their steps


def cache_folder() -> Path:
    """Where converted sets lie."""
    own = os.environ.get("EFTGAN_CACHE")
    try:
        shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return (Path(own).expanduser() if own else shared / "eftgan").resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"no folder for converted images ({error}); set EFTGAN_CACHE to one") from error


def cached_set(data: str | os.PathLike, *, size: int, limit: int | None = None) -> Path:
    """The LMDB set of a source for training at `size`: the one made before, or a new one, said in a line.

    Of several processes that ask at once one converts, and the others wait for it.
    """
    source, cache = open_source(data, limit), Cache(cache_folder())
    entry = cache.entry(source, size)
    found = cache.known(entry)
    if found is None:
        with cache.locked(str(source.path), source):  # so that one reads it, and others then know it
            found = cache.known(entry) or cache.find_or_make(source, size)
            cache.remember(source, entry, found)
    else:
        _say_found(source, found)
    return found


@dataclass(frozen=True)
class Cache:
    """The folder of converted sets."""

    path: Path

    def entry(self, source: Source, size: int) -> Path:
        """The file that knows the set of a source which looks as it does now."""
        facts = [_VERSION, size, source.limit, str(source.path), source.looked[0]]
        return self.path / "known" / f"{_digest(facts)}.json"

    def known(self, entry: Path) -> Path | None:
        """The set that was made when the source looked the same."""
        try:
            found = self.path / "sets" / json.loads(entry.read_text())["set"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if _is_whole(found) else None

    def find_or_make(self, source: Source, size: int) -> Path:
        """The set made of the same content, wherever that was, or a new one."""
        job, key = source.job(), _digest([_VERSION, size, source.limit, source.content])
        with self.locked(key, source):  # a copy of it may be converted at the same time
            found = next(filter(_is_whole, (self.path / "sets").glob(f"*-{key}.lmdb")), None)
            if found is None:
                path = self.path / "sets" / f"{plain_name(source.path)}-{size}-{key}.lmdb"
                return self._make(source, job, size, path)
        _say_found(source, found)
        return found

    def _make(self, source: Source, job: Job, size: int, path: Path) -> Path:
        """A new set, which is said in a line."""
        stored = stored_size(size, exact=False)
        remove_stale(path.parent)
        shutil.rmtree(path, ignore_errors=True)  # a damaged one
        tally = Tally(remedy=f"repair or remove them in {source.typed}")
        meta = convert(
            job,
            path,
            tally,
            size=stored,
            encoding=default_encoding(size),
            workers=DEFAULT_WORKERS if len(job.items) > _FEW else 0,
            title=source.path.name,
            source=f"{source.command} {source.path.name}",
            check=source.refuse_changes,
        )
        print(f"{source.typed}: {_summary(meta, tally, source.other_files())} -> {path}", flush=True)
        return path

    def remember(self, source: Source, entry: Path, made: Path) -> None:
        """Note how the source looked, so that it need not be read again; not if it was too new to be told apart."""
        if source.looked[1] / 1e9 < source.opened_at - _SETTLED_S:
            write_json(entry, {"set": made.name, "source": str(source.path)})

    @contextlib.contextmanager
    def locked(self, what: str, source: Source) -> Iterator[None]:
        """Hold off others who want to convert the same; the lock ends with the process, however it ends."""
        path = self.path / "locks" / f"{_digest(what)}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = open(path, "w")  # noqa: SIM115
        except OSError as error:
            raise UserError(
                f"{self.path}: converted images cannot be kept there ({error.strerror}); set EFTGAN_CACHE to a folder "
                "that you may write to"
            ) from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if _is_first():
                    print(f"{source.typed}: another process converts it; waiting", file=sys.stderr, flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _summary(meta: dict[str, Any], tally: Tally, others: Sequence[str]) -> str:
    notes = [
        f"{len(tally.broken)} unreadable left out: {'; '.join(tally.listing(3))}" if tally.broken else "",
        f"{tally.enlarged} smaller ones enlarged" if tally.enlarged else "",
        f"{counted(len(others), 'other file')} left out" if others else "",
    ]
    behind = "; ".join(filter(None, notes))
    return f"{meta['length']} images, {meta['size']}x{meta['size']} pixels{f' ({behind})' if behind else ''}"


def _is_whole(path: Path) -> bool:
    try:
        return read_meta(path) is not None
    except UserError:
        return False


def _is_first() -> bool:
    """Whether this process speaks for all that train together."""
    return os.environ.get("RANK", "0") == "0"


def _say_found(source: Source, found: Path) -> None:
    if _is_first():
        print(f"{source.typed}: as converted before, {found}", flush=True)


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
