"""Where the images of a generator's tasks come from."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eftgan.data.collection import ImageCollection, WithoutLabels
from eftgan.data.lmdb import LmdbImages, LsunImages
from eftgan.data.shapes import ShapeImages
from eftgan.data.stores import read_meta
from eftgan.errors import UserError
from eftgan.names import check_task_name

SHAPES_PREFIX = "shapes:"


def check_sequence(names: Sequence[str]) -> None:
    """Refuse an empty sequence, unusable names and a name that is used twice."""
    if not names:
        raise UserError("the sequence has no task; name at least one")
    for name in names:
        check_task_name(name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"task name used twice: {', '.join(twice)}; every task needs its own")


def data_record(typed: str, digest: str | None = None) -> dict[str, str]:
    """What a run remembers of a task's data: as it was typed, where that is, and what it holds."""
    is_path = not typed.startswith(("shapes", "torchvision:"))
    record = {"typed": typed, "path": str(Path(typed).expanduser().resolve()) if is_path else typed}
    return record if digest is None else record | {"digest": digest}


def recorded_path(typed: str, record: Mapping[str, Any] | None) -> str:
    """Where the data is: as resolved when the run started, unless another place is named since."""
    return str(record["path"]) if record and record.get("typed") == typed else typed


def open_images(data: str | os.PathLike, *, size: int, seed: int = 0, limit: int | None = None) -> ImageCollection:
    """Open an LMDB or `shapes:<kind>` for training at `size`: what is stored must not be smaller."""
    if limit is not None and limit < 1:
        raise UserError(f"{data}: limit {limit} keeps no image; give a number from 1 on")
    margin = size * 76 // 64
    if str(data).startswith(SHAPES_PREFIX):
        kind = str(data).removeprefix(SHAPES_PREFIX)
        return ShapeImages(kind, count=limit or 2048, size=margin, seed=seed)
    meta = read_meta(data)
    if meta is None:
        return LsunImages(data, size=margin, limit=limit)
    images = LmdbImages(data, limit=limit)
    if images.size < size:
        command, _, source = (meta["source"] or "folder SOURCE").partition(" ")
        raise UserError(
            f"{data} stores {images.size}x{images.size} images, too small to train at {size}x{size}; prepare "
            f"it again with: python -m data_prep {command} {source} {data} --size {size} --overwrite"
        )
    return images if images.targets is None else WithoutLabels(images)
