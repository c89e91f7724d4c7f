"""Labelled images from wherever the user has them: built-in, LMDB, torchvision's files, a tree of folders."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

from eftgan.data.class_trees import TreeImages, read_layout
from eftgan.data.lmdb import LmdbImages, spread
from eftgan.data.shapes import LabelledShapes, is_shapes
from eftgan.data.torchvision_sets import load_split
from eftgan.data.trees import open_tree
from eftgan.errors import UserError

IN_MEMORY_BYTES = 2 << 30
TORCHVISION_PREFIX = "torchvision:"
PREPARED_BY = {  # how names of folders begin -> what makes such a set
    "cifar100": "cifar SOURCE OUT --classes 100",
    "cifar10": "cifar SOURCE OUT --classes 10",
    "svhn": "svhn SOURCE OUT",
    "tiny": "tiny SOURCE OUT",
}
_SHAPES_PER_CLASS = {True: 100, False: 25}


def is_path(data: str) -> bool:
    """Whether `data` means a file or a folder: not built-in pictures, and not files in torchvision's own layout."""
    return not is_shapes(data) and not data.startswith(TORCHVISION_PREFIX)


class Pairs(Protocol):
    """Images with their class indices, read several at once."""

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[torch.Tensor, int]]: ...


class LabelledImages(Dataset):
    """uint8 images with labels 0..k-1. Small sets lie in memory in `images`; for large ones that is None.

    Items are (uint8 (3, S, S), label); `fetch` gives a whole batch and is the fast way.
    """

    def __init__(
        self,
        base: torch.Tensor | Pairs,
        targets: torch.Tensor,
        size: int,
        indices: torch.Tensor | None = None,
        digest: str | None = None,
    ) -> None:
        self.digest = digest  # of the source that it is a part of, where that can change
        self.images = base if isinstance(base, torch.Tensor) else None
        self.targets, self.size = targets, size
        self._base: Any = base  # a large one is shared by all tasks, each with its indices
        self._indices = indices

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        images, targets = self.fetch(torch.as_tensor(indices))
        return list(zip(images, targets.tolist(), strict=True))

    def fetch(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 (B, 3, S, S) and int64 (B,)."""
        if self.images is not None:
            return self.images[indices], self.targets[indices]
        chosen = indices if self._indices is None else self._indices[indices]
        items = self._base.__getitems__(chosen.tolist())
        return torch.stack([item[0] for item in items]), self.targets[indices]

    def in_memory(self) -> "LabelledImages":
        """Itself, or where it fits into memory a copy that lies there."""
        if self.images is not None or len(self) * 3 * self.size**2 > IN_MEMORY_BYTES:
            return self
        images = torch.empty(len(self), 3, self.size, self.size, dtype=torch.uint8)
        for first in range(0, len(self), 1024):
            images[first : first + 1024] = self.fetch(torch.arange(first, min(first + 1024, len(self))))[0]
        return LabelledImages(images, self.targets, self.size, digest=self.digest)

    def of_classes(self, classes: Sequence[int]) -> "LabelledImages":
        """Only the images of these classes, relabelled 0..k-1 in their order."""
        local = torch.full((max(*classes, int(self.targets.max())) + 1,), -1)
        local[torch.as_tensor(classes)] = torch.arange(len(classes))
        targets = local[self.targets]
        kept = torch.nonzero(targets >= 0).flatten()
        return self.subset(kept, targets[kept])

    def subset(self, kept: torch.Tensor, targets: torch.Tensor | None = None) -> "LabelledImages":
        """The images at `kept`, with new targets where given."""
        targets = self.targets[kept] if targets is None else targets
        if self.images is not None:
            return LabelledImages(self.images[kept], targets, self.size, digest=self.digest)
        chosen = kept if self._indices is None else self._indices[kept]
        return LabelledImages(self._base, targets, self.size, chosen, self.digest)


Opened = tuple[LabelledImages, LabelledImages, list[str]]  # train, test, class names


def open_labelled(
    data: str, *, size: int, seed: int = 0, limit: int | None = None, test_share: float | None = None
) -> Opened:
    """Open a labelled source's train and test images at `size`.

    `shapes` or `shapes:<classes>`; `torchvision:<Name>:<folder>`; a folder of train.lmdb and test.lmdb as
    data_prep makes it; a folder, tar, tar.gz or zip of train/<class>/ and test/<class>/ (or val/<class>/), or of
    <class>/ alone, of which `test_share` is the share to test on.
    """
    if is_shapes(data):
        opened = _open_shapes(data, size, seed)
    elif data.startswith(TORCHVISION_PREFIX):
        opened = _open_torchvision(data, size)
    elif (Path(data).expanduser() / "train.lmdb").is_dir():
        opened = _open_lmdbs(Path(data).expanduser(), size)
    else:
        opened, test_share = _open_tree(data, size, test_share), None
    if test_share is not None:
        raise UserError(f"{data}: test_share has no effect, it has test images of its own")
    train, test, classes = opened
    if limit is not None:
        train, test = (part.subset(_stratified(part.targets, limit)) for part in (train, test))
    return train.in_memory(), test.in_memory(), classes


def _stratified(targets: torch.Tensor, limit: int) -> torch.Tensor:
    """Evenly spaced indices after sorting by class, so that every class keeps its share."""
    order = torch.argsort(targets, stable=True)
    return order[torch.from_numpy(spread(len(targets), limit))].sort().values


def _open_shapes(data: str, size: int, seed: int) -> Opened:
    wanted = data.partition(":")[2]
    if wanted and not wanted.isdigit():
        raise UserError(f"{data!r}: expected shapes:<number of classes>, e.g. shapes:12")
    chosen = {"classes": int(wanted)} if wanted else {}
    train, test = (
        LabelledShapes(count_per_class=_SHAPES_PER_CLASS[train], size=size, seed=seed, train=train, **chosen)
        for train in (True, False)
    )
    parts = [LabelledImages(part.images, part.targets, size) for part in (train, test) if part.targets is not None]
    return parts[0], parts[1], train.labels or []


def _open_torchvision(data: str, size: int) -> Opened:
    name, _, root = data.removeprefix(TORCHVISION_PREFIX).partition(":")
    if not root:
        raise UserError(f"{data!r}: expected torchvision:<Name>:<folder>, e.g. torchvision:CIFAR10:downloads")
    parts = []
    for train in (True, False):
        images, targets, classes = load_split(name, root, train=train)
        parts.append(LabelledImages(_resized(images, size), targets, size))
    return parts[0], parts[1], classes


def _resized(images: torch.Tensor, size: int) -> torch.Tensor:
    if images.shape[-1] == size:
        return images
    chunks = (
        F.interpolate(chunk.float(), size=(size, size), mode="bilinear", antialias=True).round().to(torch.uint8)
        for chunk in images.split(1024)
    )
    return torch.cat(list(chunks))


def _open_lmdbs(folder: Path, size: int) -> Opened:
    parts, labels = [], []
    for split in ("train", "test"):
        images = LmdbImages(folder / f"{split}.lmdb")
        if images.targets is None or images.labels is None:
            raise UserError(f"{images.folder} has no labels; make it with: python -m data_prep folder --splits")
        if images.size != size:
            raise UserError(
                f"{images.folder} stores {images.size}x{images.size} images, the classifier wants {size}x{size}; "
                f"prepare it again with --size {size} --exact"
            )
        parts.append(LabelledImages(images, images.targets, size, digest=images.digest))
        labels.append(images.labels)
    if labels[0] != labels[1]:
        raise UserError(f"{folder}: train.lmdb and test.lmdb differ in classes; prepare them in one command")
    return parts[0], parts[1], labels[0]


def _preparation(data: str) -> str:
    """The command that makes a set of this name."""
    known = (words for name, words in PREPARED_BY.items() if Path(data).name.lower().replace("-", "").startswith(name))
    before, _, after = next(known, "folder SOURCE OUT --splits train test").partition("OUT")
    return f"python -m data_prep {before}{shlex.quote(data)}{after}"


def _open_tree(data: str, size: int, test_share: float | None) -> Opened:
    if not Path(data).expanduser().exists():
        raise UserError(f"no labelled images at {data}; get them as its --help says, then: {_preparation(data)}")
    tree = open_tree(data)
    layout = read_layout(tree, test_share)
    digest, parts = layout.digest(tree), []
    for items in (layout.train, layout.test):
        targets = torch.tensor([target for _, target in items])
        parts.append(LabelledImages(TreeImages(tree, items, size), targets, size, digest=digest))
    return parts[0], parts[1], layout.classes
