"""Where the images of a generator's tasks come from."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eftgan.data.cache import cache_folder, cached_set
from eftgan.data.collection import ImageCollection, WithoutLabels
from eftgan.data.conversion import stored_size
from eftgan.data.labelled import is_path
from eftgan.data.lmdb import LmdbImages, LsunImages
from eftgan.data.shapes import ShapeImages
from eftgan.data.stores import is_lmdb, read_meta
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


def built_in(typed: str) -> str | None:
    """The name of a set that is the same wherever its files lie: shapes:12, torchvision:CIFAR10; none for a path."""
    if is_path(typed):
        return None
    return ":".join(typed.split(":")[:2]) if typed.startswith("torchvision:") else typed


def data_record(typed: str, digest: str | None = None, converted: Path | None = None) -> dict[str, str]:
    """What a run remembers of a task's data: as it was typed, where that is, the set made of it, and what it holds."""
    record = {"typed": typed, "path": str(Path(typed).expanduser().resolve()) if is_path(typed) else typed}
    if converted is not None:
        record["set"] = str(converted)
    return record if digest is None else record | {"digest": digest}


def recorded_path(typed: str, record: Mapping[str, Any] | None) -> str:
    """Where the data is: as resolved when the run started, unless another place is named since.

    Of images that were converted it is the set made of them then, while it is there: a run keeps the images that it
    was started with, even if the folder that they came from changes.
    """
    if not record or record.get("typed") != typed:
        return typed
    converted = str(record.get("set", ""))
    return converted if converted and is_lmdb(converted) else str(record["path"])


def open_images(
    data: str | os.PathLike, *, size: int, seed: int = 0, limit: int | None = None, digest: str | None = None
) -> ImageCollection:
    """Open images for training at `size`: an LMDB, `shapes:<kind>`, or a folder or archive, which is converted once.

    digest: what a run recorded of them when it started, if it did.
    """
    if limit is not None and limit < 1:
        raise UserError(f"{data}: limit {limit} keeps no image; give a number from 1 on")
    margin = stored_size(size, exact=False)
    if str(data).startswith(SHAPES_PREFIX):
        kind = str(data).removeprefix(SHAPES_PREFIX)
        return ShapeImages(kind, count=limit or 2048, size=margin, seed=seed)
    meta = read_meta(data) if is_lmdb(data) else None
    if meta is None:
        return _as_begun(data, margin, limit, digest) or LmdbImages(cached_set(data, size=size, limit=limit))
    images = LmdbImages(data, limit=limit)
    if images.size < size:
        command, _, source = (meta["source"] or "folder SOURCE").partition(" ")
        words = shlex.join(
            ["python", "-m", "data_prep", command, source, str(data), "--size", str(size), "--overwrite"]
        )
        raise UserError(
            f"{data} stores {images.size}x{images.size} images, too small to train at {size}x{size}; prepare "
            f"it again with: {words}"
        )
    return images if images.targets is None else WithoutLabels(images)


def converted_set(images: ImageCollection) -> Path | None:
    """The set that images were read from, if it was made of a folder or an archive."""
    folder = getattr(images, "folder", None)
    return folder if folder is not None and folder.is_relative_to(cache_folder()) else None


def _as_begun(data: str | os.PathLike, size: int, limit: int | None, digest: str | None) -> LsunImages | None:
    """LSUN's own LMDB read as it is, for a run that was begun so before there were converted sets."""
    if digest is None or not is_lmdb(data):
        return None
    images = LsunImages(data, size=size, limit=limit)
    return images if images.digest == digest else None
