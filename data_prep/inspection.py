"""`check` and `info`: is a prepared set whole, and what does it look like."""

import argparse
import math
from pathlib import Path

import torch

from eftgan.data.grid import save_grid
from eftgan.data.lmdb import Digest, LmdbImages, LsunImages, spread
from eftgan.data.stores import META, TARGETS, entry_key, lmdb_folder, read_meta, reading
from eftgan.errors import UserError
from eftgan.progress import progress_bar

_PREVIEW_PX = 96  # for LSUN's own LMDBs, whose images have no common size


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add `check` and `info` to the command line."""
    check = commands.add_parser("check", help="verify every entry of an LMDB and its digest")
    check.add_argument("paths", nargs="+", type=Path, metavar="LMDB", help="sets that data_prep made")
    check.set_defaults(run=run_check)
    info = commands.add_parser("info", help="print an LMDB's meta and write a contact sheet")
    info.add_argument("paths", nargs="+", type=Path, metavar="LMDB", help="sets that data_prep made")
    info.add_argument("--sheet", type=Path, help="the PNG to write; default: <LMDB>.png beside it")
    info.add_argument("--count", type=int, default=64, help="images on the sheet, evenly spaced over the set")
    info.set_defaults(run=run_info)


def run_check(args: argparse.Namespace) -> None:
    """Check each set."""
    for path in expand(args.paths):
        check_set(path)


def expand(paths: list[Path]) -> list[Path]:
    """Replace a folder of train.lmdb and test.lmdb by the two."""
    found = []
    for path in paths:
        splits = [path / f"{split}.lmdb" for split in ("train", "test")]
        splits = [split for split in splits if split.is_dir()]
        found += splits or [path]
    return found


def check_set(path: Path) -> None:
    """Decode every entry and recompute the digest; a UserError names the first thing that is wrong."""
    meta = read_meta(path)
    images = LsunImages(path, size=_PREVIEW_PX) if meta is None else LmdbImages(path)
    for index in progress_bar(range(len(images)), desc=path.name, unit="img"):
        images[index]
    if meta is not None and isinstance(images, LmdbImages):
        _check_digest(path, meta, images)
    print(f"{path}: {len(images)} images, all readable{'' if meta is None else ', digest right'}")


def _check_digest(path: Path, meta: dict, images: LmdbImages) -> None:
    digest = Digest(meta["size"], meta["encoding"], meta["labels"])
    with reading(images.folder) as transaction:
        for index in range(meta["length"]):
            digest.add(transaction.get(entry_key(index), b""))
        if images.targets is not None:
            digest.add(transaction.get(TARGETS, b""))
        expected = meta["length"] + 1 + (images.targets is not None)
        entries = transaction.stat()["entries"]
    if entries != expected:
        raise UserError(f"{path} has {entries} entries, {META.decode()} speaks of {expected}; make it again")
    classes = len(images.labels or [])
    if images.targets is not None and not 0 <= int(images.targets.max()) < classes:
        raise UserError(f"{path}: a class index lies outside the {classes} classes; make it again")
    if digest.hex() != meta["digest"]:
        raise UserError(f"{path}: the content does not match its digest, so it was changed; make it again")


def run_info(args: argparse.Namespace) -> None:
    """Print each set's meta and write its contact sheet."""
    paths = expand(args.paths)
    if args.sheet and len(paths) > 1:
        raise UserError("--sheet names one PNG; give one LMDB with it")
    for path in paths:
        sheet = args.sheet or lmdb_folder(path).with_name(lmdb_folder(path).name + ".png")
        describe(path)
        contact_sheet(path, sheet, args.count)
        print(f"  contact sheet: {sheet}")


def describe(path: Path) -> None:
    """Print the meta, a line each."""
    meta = read_meta(path)
    if meta is None:
        meta = {"format": "LSUN's own", "length": len(LsunImages(path, size=_PREVIEW_PX))}
    print(path)
    for key, value in meta.items():
        if key == "labels" and value is not None:
            value = f"{len(value)}: {', '.join(value[:10])}{', ...' if len(value) > 10 else ''}"
        print(f"  {key}: {value}")


def contact_sheet(path: Path, sheet: Path, count: int = 64) -> None:
    """Write `count` evenly spaced images of the set as one PNG."""
    images = LsunImages(path, size=_PREVIEW_PX) if read_meta(path) is None else LmdbImages(path)
    chosen = images.__getitems__(spread(len(images), max(1, count)).tolist())
    tiles = torch.stack([item[0] if isinstance(item, tuple) else item for item in chosen])
    save_grid(tiles, sheet, columns=math.ceil(math.sqrt(len(tiles))))
