"""Test images for sets that have none of their own: some of every class, chosen by their names."""

import hashlib
from collections.abc import Sequence

from eftgan.errors import UserError

SHARE = 0.2
Items = list[tuple[str, int]]  # names of images and the indices of their classes


def hold_out(items: Items, classes: Sequence[str], share: float, under: str = "") -> tuple[Items, Items]:
    """Training and test images. Every class has both; about `share` of its images are tested on.

    Each name (below the folder `under`) decides for itself: the choice is the same on every machine and in every
    archive of the same files, and an image does not change sides when others come or go.
    """
    train: Items = []
    test: Items = []
    for index, name in enumerate(classes):
        own = sorted((_place(item[0][len(under) :]), item) for item in items if item[1] == index)
        if len(own) < 2:
            raise UserError(f"class {name!r} has one image; to hold out test images, every class needs two or more")
        count = min(max(sum(place < share for place, _ in own), 1), len(own) - 1)
        test += [item for _, item in own[:count]]
        train += [item for _, item in own[count:]]
    return sorted(train), sorted(test)


def _place(name: str) -> float:
    """A number from 0 to 1 that depends on the name alone."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
