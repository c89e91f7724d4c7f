"""Labelled images in a folder or an archive: train/<class>/ and test/<class>/, or plain <class>/ folders."""

import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset

from eftgan.data.held_out import SHARE, Items, hold_out
from eftgan.data.images import decode_rgb, fit_square, to_chw
from eftgan.data.trees import Tree, class_folders
from eftgan.errors import UserError


@dataclass(frozen=True)
class Layout:
    """What a tree of labelled images holds."""

    classes: list[str]
    train: Items
    test: Items

    def digest(self, tree: Tree) -> str:
        """The same for the same files in the same parts, by their names and sizes."""
        digest, top = hashlib.sha256(), tree.top()
        for part, items in (("train", self.train), ("test", self.test)):
            for name, _ in items:
                digest.update(
                    f"{part} {name.removeprefix(top)} {tree.size_of(name)}\n".encode("utf-8", "surrogateescape")
                )
        return digest.hexdigest()


def read_layout(tree: Tree, test_share: float | None = None) -> Layout:
    """The tree's own parts; where there is only one, a share of every class becomes the test images.

    test_share: that share (default: a fifth); refused where the tree has test images of its own.
    """
    top = _top_of_parts(tree)
    test_folder = next((name for name in ("test/", "val/") if top is not None and tree.images(top + name)), None)
    if top is None or test_folder is None:
        return _held_out_layout(tree, tree.top() if top is None else f"{top}train/", test_share or SHARE)
    if test_share is not None:
        raise UserError(f"{tree.path}: test_share has no effect, it has test images of its own in {top}{test_folder}")
    classes, train = class_folders(tree, f"{top}train/")
    test_classes, test = class_folders(tree, top + test_folder)
    if classes != test_classes:
        raise UserError(f"{tree.path}: train/ and {test_folder} differ in classes")
    return Layout(classes, train, test)


def _top_of_parts(tree: Tree) -> str | None:
    """'' or 'top/' where train/<class>/ lies; none where there is no such folder, or `train` is itself a class."""
    with_classes: set[str] = set()
    without: set[str] = set()
    for parts in (name.split("/") for name in tree.images()):
        for depth in (0, 1):
            if parts[depth : depth + 1] == ["train"] and len(parts) > depth + 1:
                (with_classes if len(parts) > depth + 2 else without).add("".join(f"{part}/" for part in parts[:depth]))
    return min(with_classes - without, default=None)


def _held_out_layout(tree: Tree, under: str, share: float) -> Layout:
    classes, items = class_folders(tree, under)
    try:
        train, test = hold_out(items, classes, share, under)
    except UserError as error:
        raise UserError(f"{tree.path}: {error}") from error
    if os.environ.get("RANK", "0") == "0":
        _say_once(
            f"{tree.path}: no test/ beside its {len(classes)} classes, so {share:.0%} of every class are held out: "
            f"{len(train)} images to train on, {len(test)} to test on"
        )
    return Layout(classes, train, test)


@functools.cache
def _say_once(line: str) -> None:
    """However often a set is opened."""
    print(line, flush=True)


class TreeImages(Dataset):
    """Images of a tree, decoded and fitted to `size` when they are read."""

    def __init__(self, tree: Tree, items: Items, size: int):
        self.tree, self.items, self.size = tree, items, size

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        name, target = self.items[index]
        try:
            return torch.from_numpy(to_chw(fit_square(decode_rgb(self.tree.read(name)), self.size))), target
        except Exception as error:  # decoders raise whatever a damaged file makes of them
            raise UserError(f"{self.tree.path}: {name} is unreadable ({error}); repair or remove it") from error
