"""From raw images to an LMDB set: workers, resizing, broken images, the atomic write.

`python -m data_prep` and the cache of folders and archives (`cache.py`) both use it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from eftgan.data.images import decode_rgb, encode_jpeg, fit_square, to_chw
from eftgan.data.lmdb import write_lmdb
from eftgan.data.pool import ordered_map
from eftgan.data.stores import read_entry
from eftgan.data.trees import Tree
from eftgan.errors import UserError
from eftgan.progress import progress_bar

DEFAULT_WORKERS = min(8, os.cpu_count() or 1)
MAX_BROKEN_PERCENT = 1.0


@dataclass(frozen=True)
class Job:
    """One LMDB to write: (item, class index or None) pairs and the function that turns an item into a picture.

    `load` runs in the workers and returns an RGB image, cropped but not resized.
    """

    items: Sequence[tuple[Any, int | None]]
    load: Callable[[Any], Image.Image]
    classes: list[str] | None = None


def stored_size(size: int, *, exact: bool) -> int:
    """Pixels a side in the LMDB for a finest training size."""
    return size if exact else size * 76 // 64


def default_encoding(size: int) -> str:
    """How images for a finest training size are stored: pixels as they are while these are few."""
    return "raw" if size <= 64 else "jpeg"


def convert(
    job: Job,
    path: Path,
    tally: "Tally",
    *,
    size: int,
    encoding: str,
    workers: int,
    title: str,
    source: str,
    overwrite: bool = False,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Write a job's images, `size` pixels a side, to a new LMDB and return its meta.

    title: of the progress bar. source: what the set says of where it comes from. The tally counts what was broken.
    check: is called when all was read; where it raises, there will be no set.
    """

    def samples() -> Iterator[tuple[bytes, int | None]]:
        results = ordered_map(Fit(job.load, size, encoding), job.items, workers)
        yield from tally.good(iter(progress_bar(results, total=len(job.items), desc=title, unit="img")))
        check()

    return write_lmdb(
        path,
        samples(),
        size=size,
        encoding=encoding,
        labels=job.classes,
        source=source,
        overwrite=overwrite,
    )


@dataclass(frozen=True)
class Fitted:
    """What a worker sends back: encoded pixels, or the reason why there are none."""

    name: str
    target: int | None
    content: bytes = b""
    enlarged: bool = False
    broken: str = ""


@dataclass(frozen=True)
class Fit:
    """The work on one item: load, resize the short side, crop the centre, encode."""

    load: Callable[[Any], Image.Image]
    size: int
    encoding: str

    def __call__(self, item: tuple[Any, int | None]) -> Fitted:
        content, target = item
        name = content[0] if isinstance(content, tuple) else content
        name = name.decode() if isinstance(name, bytes) else str(name)
        try:
            image = self.load(content)
            pixels = to_chw(fit_square(image, self.size))
        except Exception as error:  # decoders raise whatever a damaged file makes of them
            return Fitted(name, target, broken=f"{type(error).__name__}: {error}")
        encoded = pixels.tobytes() if self.encoding == "raw" else encode_jpeg(pixels)
        return Fitted(name, target, encoded, enlarged=min(image.size) < self.size)


class Tally:
    """Counts what passes, keeps the broken ones aside, and fails where they are too many."""

    def __init__(self, max_broken_percent: float = MAX_BROKEN_PERCENT, remedy: str = "repair or remove them"):
        self.max_broken_percent, self.remedy = max_broken_percent, remedy
        self.count = self.enlarged = 0
        self.broken: list[Fitted] = []

    def good(self, results: Iterator[Fitted]) -> Iterator[tuple[bytes, int | None]]:
        """The readable images; raises a UserError at the end where too many were not."""
        for result in results:
            self.count += 1
            if result.broken:
                self.broken.append(result)
                continue
            self.enlarged += result.enlarged
            yield result.content, result.target
        percent = 100 * len(self.broken) / max(self.count, 1)
        if percent > self.max_broken_percent or len(self.broken) == self.count:
            raise UserError(
                f"{len(self.broken)} of {self.count} images are unreadable ({percent:.1f} %, allowed "
                f"{self.max_broken_percent:g} %); nothing was written; {self.remedy}: {'; '.join(self.listing(5))}"
            )

    def listing(self, most: int | None = None) -> list[str]:
        """Name and reason of each broken image, or of so many and how many more there are."""
        lines = [f"{result.name}: {result.broken}" for result in self.broken[:most]]
        rest = len(self.broken) - len(lines)
        return lines + ([f"and {rest} more"] if rest else [])


@dataclass(frozen=True)
class LoadFromTree:
    """The usual `load`: decode a named file of a tree."""

    tree: Tree

    def __call__(self, name: str) -> Image.Image:
        return decode_rgb(self.tree.read(name))


@dataclass(frozen=True)
class LoadEntry:
    """The same for LSUN's own LMDB: decode the image behind one key."""

    path: str

    def __call__(self, key: bytes) -> Image.Image:
        return decode_rgb(read_entry(self.path, key))
