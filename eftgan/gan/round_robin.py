"""Batches of the tasks that are trained together, one task after the other."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.utils.data import Dataset

from eftgan.data.collection import ImageCollection
from eftgan.data.sampler import StepBatches


class RoundRobinBatches(Dataset):
    """Item m is batch m // n of task m % n, where n tasks take turns: the task's name and its images.

    Nothing but m says which images these are, so training can stop and go on anywhere. A task alone has every turn:
    item m is then simply its batch m.
    """

    def __init__(
        self, images: Mapping[str, ImageCollection], batch: int, *, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        self.names = list(images)
        self.images = list(images.values())
        self.orders = [
            StepBatches(len(each), batch, seed=seed, task=name, rank=rank, world=world) for name, each in images.items()
        ]

    def __getitem__(self, number: int) -> tuple[str, Tensor]:
        turn, task = divmod(number, len(self.names))
        return self.names[task], torch.stack(self.images[task].__getitems__(self.orders[task].at(turn)))
