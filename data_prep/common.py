"""What every data set's command shares: its options, and how it calls the shared writer."""

import argparse
import dataclasses
import sys
from pathlib import Path

from eftgan.data.atomic_folder import atomic_folder, refuse_existing
from eftgan.data.conversion import (
    DEFAULT_WORKERS,
    MAX_BROKEN_PERCENT,
    Job,
    Tally,
    convert,
    default_encoding,
    stored_size,
)
from eftgan.data.spread import spread
from eftgan.errors import UserError

SIZES = (32, 64, 128, 256)


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
        default=DEFAULT_WORKERS,
        metavar="N",
        help="worker processes, 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--max-broken",
        type=float,
        default=MAX_BROKEN_PERCENT,
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
    job = dataclasses.replace(job, items=[job.items[i] for i in spread(len(job.items), args.limit)])
    size, encoding = stored_size(args.size, exact=args.exact), args.encoding or default_encoding(args.size)
    tally = Tally(args.max_broken, "repair or remove them, or raise --max-broken")
    meta = convert(
        job,
        path,
        tally,
        size=size,
        encoding=encoding,
        workers=args.workers,
        title=shown.name,
        source=f"{args.dataset} {args.source}",
        overwrite=overwrite,
    )
    if tally.broken:
        print(f"skipped {len(tally.broken)} unreadable images:", *tally.listing(), sep="\n  ", file=sys.stderr)
    if tally.enlarged:
        print(f"note: {tally.enlarged} images were smaller than {size} px and were enlarged", file=sys.stderr)
    print(f"{shown}: {meta['length']} images of {size}x{size}, {encoding}, digest {meta['digest'][:12]}")
