"""Batches of the tasks that are trained together, one task after the other."""

from collections.abc import Mapping

from torch import Tensor
from torch.utils.data import Dataset, Subset, default_collate

from eftgan.data.sampler import StepBatches


class Turns(Dataset):
    """Item m is batch m // n of task m % n, where n tasks take turns: the task's name and its images.

    Nothing but m says which images these are, so training can stop and go on anywhere. A task alone has every turn:
    item m is then simply its batch m.
    """

    def __init__(self, images: Mapping[str, Dataset], batch: int, *, seed: int, rank: int = 0, world: int = 1) -> None:
        self.names = list(images)
        self.images = [Subset(each, range(len(each))) for each in images.values()]  # reads a batch in one call
        self.orders = [
            StepBatches(len(each), batch, seed=seed, task=name, rank=rank, world=world) for name, each in images.items()
        ]

    def __getitem__(self, number: int) -> tuple[str, Tensor]:
        turn, task = divmod(number, len(self.names))
        batch = default_collate(self.images[task].__getitems__(self.orders[task].at(turn)))
        return self.names[task], batch[0] if isinstance(batch, (list, tuple)) else batch
