"""A collection of images, as everybody who reads one sees it: uint8 pictures in a fixed order, and a digest."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset


class ImageCollection(Protocol):
    """Images without labels."""

    @property
    def digest(self) -> str:
        """The same for the same images in the same order."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor:
        """uint8 (3, H, W)."""
        ...

    def __getitems__(self, indices: Sequence[int]) -> list[Tensor]:
        """Several of them, read at once."""
        ...


@dataclass(frozen=True)
class Selection(Dataset[Tensor]):
    """Some images of a collection."""

    base: ImageCollection
    indices: list[int]

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.base.digest} {self.indices}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Tensor:
        return self.base[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Tensor]:
        return self.base.__getitems__([self.indices[index] for index in indices])


def held_out(count: int, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of `count` images in order: those that are left to train on, and a random share, one at least."""
    order = torch.randperm(count, generator=generator)
    held = max(1, round(share * count))
    return order[held:].sort().values, order[:held].sort().values


@dataclass(frozen=True)
class WithoutLabels(Dataset[Tensor]):
    """The images of a labelled set; here, and nowhere else, labels are dropped."""

    base: Any

    @property
    def digest(self) -> str:
        return self.base.digest

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Tensor:
        return self.base[index][0]

    def __getitems__(self, indices: Sequence[int]) -> list[Tensor]:
        return [image for image, _ in self.base.__getitems__(indices)]
