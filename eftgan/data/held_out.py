"""Test images for sets that have none of their own: some of every class, chosen by their names."""

import hashlib
from collections.abc import Sequence

from eftgan.errors import UserError

SHARE = 0.2
Items = list[tuple[str, int]]  # names of images and the indices of their classes


def hold_out(items: Items, classes: Sequence[str], share: float, under: str = "") -> tuple[Items, Items]:
    """Training and test images: `share` of every class to test on, at least one image and at most all but one.

    Names alone decide (those below the folder `under`), so the choice is the same on every machine and in every archive
    of the same files.
    """
    shuffled = sorted(items, key=lambda item: _place(item[0][len(under) :]))
    train: Items = []
    test: Items = []
    for index, name in enumerate(classes):
        own = [item for item in shuffled if item[1] == index]
        if len(own) < 2:
            raise UserError(f"class {name!r} has one image; to hold out test images, every class needs two or more")
        count = min(max(round(share * len(own)), 1), len(own) - 1)
        test += own[:count]
        train += own[count:]
    return sorted(train), sorted(test)


def _place(name: str) -> bytes:
    """Where a name comes in an order that has nothing to do with its letters."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
