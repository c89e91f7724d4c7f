"""What every data set's preparation shares: options, workers, resizing, broken images, the atomic write."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from data_prep.pool import ordered_map
from eftgan.data.atomic_folder import atomic_folder, refuse_existing
from eftgan.data.images import decode_rgb, encode_jpeg, fit_square, to_chw
from eftgan.data.lmdb import spread, write_lmdb
from eftgan.data.trees import Tree
from eftgan.errors import UserError
from eftgan.progress import progress_bar

SIZES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Job:
    """One LMDB to write: (item, class index or None) pairs and the function that turns an item into a picture.

    `load` runs in the workers and returns an RGB image, cropped but not resized.
    """

    items: Sequence[tuple[Any, int | None]]
    load: Callable[[Any], Image.Image]
    classes: list[str] | None = None


def add_common_arguments(parser: argparse.ArgumentParser, *, size: int, exact: bool) -> None:
    """The options of every data set; `size` and `exact` are its defaults."""
    parser.add_argument("source", help="the raw data (see above)")
    parser.add_argument("output", type=Path, help="the LMDB folder to make, e.g. data/cats.lmdb")
    sizes = ", ".join(map(str, SIZES))
    parser.add_argument(
        "--size", type=int, default=size, metavar="PX", help=f"finest training size: {sizes} (default: {size})"
    )
    parser.add_argument(
        "--exact",
        action=argparse.BooleanOptionalAction,
        default=exact,
        help="store at exactly --size; without it at size*76/64, which leaves a margin for random crops "
        f"(default: {'--exact' if exact else '--no-exact'})",
    )
    parser.add_argument("--encoding", choices=("raw", "jpeg"), help="default: raw up to 64 px, jpeg above")
    parser.add_argument("--limit", type=int, metavar="N", help="keep N images, evenly spaced over the set")
    parser.add_argument(
        "--workers",
        type=int,
        default=min(8, os.cpu_count() or 1),
        metavar="N",
        help="worker processes, 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--max-broken",
        type=float,
        default=1.0,
        metavar="PERCENT",
        help="fail above this share of unreadable images (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing set")


def check_common_arguments(args: argparse.Namespace) -> None:
    """Refuse what cannot work before any raw data is read."""
    if args.size not in SIZES:
        raise UserError(f"--size {args.size} is not a power of two from 32 to 256; choose one of {SIZES}")
    if args.limit is not None and args.limit < 1:
        raise UserError(f"--limit {args.limit} keeps no image; give a number from 1 on")
    if args.workers < 0:
        raise UserError(f"--workers {args.workers} is negative; give 0 for none")
    if not 0 <= args.max_broken <= 100:
        raise UserError(f"--max-broken {args.max_broken} is not a percentage from 0 to 100")
    refuse_existing(args.output, overwrite=args.overwrite)


def stored_size(size: int, *, exact: bool) -> int:
    """Pixels a side in the LMDB for a finest training size."""
    return size if exact else size * 76 // 64


def run(args: argparse.Namespace, jobs: Job | dict[str, Job]) -> None:
    """Write one LMDB, or a folder of one LMDB per split that appears when all of them are whole."""
    if isinstance(jobs, Job):
        _write(args, jobs, args.output, overwrite=args.overwrite)
        return
    with atomic_folder(args.output, overwrite=args.overwrite) as folder:
        for split, job in jobs.items():
            _write(args, job, folder / f"{split}.lmdb", shown=args.output / f"{split}.lmdb")


def _write(
    args: argparse.Namespace, job: Job, path: Path, *, shown: Path | None = None, overwrite: bool = False
) -> None:
    shown = shown or path
    if not job.items:
        raise UserError(f"no images in {args.source}; see: python -m data_prep {args.dataset} --help")
    items = [job.items[i] for i in spread(len(job.items), args.limit)]
    encoding = args.encoding or ("raw" if args.size <= 64 else "jpeg")
    size = stored_size(args.size, exact=args.exact)
    results = ordered_map(Fit(job.load, size, encoding), items, args.workers)
    tally = Tally(max_broken_percent=args.max_broken)
    bar = progress_bar(results, total=len(items), desc=shown.name, unit="img")
    source = f"{args.dataset} {args.source}"
    meta = write_lmdb(
        path,
        tally.good(iter(bar)),
        size=size,
        encoding=encoding,
        labels=job.classes,
        source=source,
        overwrite=overwrite,
    )
    tally.report(size)
    print(f"{shown}: {meta['length']} images of {size}x{size}, {encoding}, digest {meta['digest'][:12]}")


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

    def __init__(self, max_broken_percent: float):
        self.max_broken_percent = max_broken_percent
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
                f"{self.max_broken_percent:g} %); nothing was written. Repair or remove them, or raise "
                f"--max-broken:\n{self._listing(20)}"
            )

    def report(self, size: int) -> None:
        """Tell what was skipped or enlarged."""
        if self.broken:
            print(f"skipped {len(self.broken)} unreadable images:\n{self._listing()}", file=sys.stderr)
        if self.enlarged:
            print(f"note: {self.enlarged} images were smaller than {size} px and were enlarged", file=sys.stderr)

    def _listing(self, most: int | None = None) -> str:
        lines = [f"  {result.name}: {result.broken}" for result in self.broken[:most]]
        rest = len(self.broken) - len(lines)
        return "\n".join(lines + ([f"  ... and {rest} more"] if rest else []))


@dataclass(frozen=True)
class LoadFromTree:
    """The usual `load`: decode a named file of a tree."""

    tree: Tree

    def __call__(self, name: str) -> Image.Image:
        return decode_rgb(self.tree.read(name))
