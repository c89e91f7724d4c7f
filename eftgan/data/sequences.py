"""Ordered tasks for image generation: a name and where its images are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from eftgan.data.lmdb import LmdbImages, LsunImages
from eftgan.data.shapes import ShapeImages
from eftgan.data.stores import read_meta
from eftgan.errors import UserError
from eftgan.names import check_task_name

SHAPES_PREFIX = "shapes:"


@dataclass(frozen=True)
class TaskSource:
    """One task: its name, and an LMDB path or `shapes:<kind>`; `limit` keeps that many images."""

    name: str
    data: str
    limit: int | None = None

    def __post_init__(self) -> None:
        check_task_name(self.name)

    def open(self, *, size: int, seed: int):
        """The task's images, ready for a finest training size."""
        return open_images(self.data, size=size, seed=seed, limit=self.limit)


def check_sequence(tasks: Sequence[TaskSource]) -> None:
    """Refuse an empty sequence and a name that is used twice."""
    names = [task.name for task in tasks]
    if not names:
        raise UserError("the sequence has no task; name at least one")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"task name used twice: {', '.join(twice)}; every task needs its own")


def open_images(
    data: str | os.PathLike, *, size: int, seed: int = 0, limit: int | None = None
) -> LmdbImages | LsunImages | ShapeImages:
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
    return images
