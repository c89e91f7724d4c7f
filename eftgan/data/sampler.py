"""Batches that depend on nothing but (seed, task, step): stopping and going on changes nothing."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from eftgan.data.streams import stream
from eftgan.errors import UserError


class StepBatches(Sampler[list[int]]):
    """This rank's `batch` indices for every global step from `start_step` on.

    Epoch e is a permutation drawn from the stream (seed, task, "order", e). Epochs follow each other without
    padding or dropping, so a step may straddle two. A step takes the next world*batch indices, and rank r
    the r-th slice of them. `steps` is the number of steps to yield; None goes on for ever.
    """

    def __init__(
        self,
        length: int,
        batch: int,
        *,
        seed: int,
        task: str,
        start_step: int = 0,
        steps: int | None = None,
        rank: int = 0,
        world: int = 1,
    ):
        if length < 1 or batch < 1:
            raise UserError(f"task {task!r}: cannot draw batches of {batch} from {length} images")
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world} processes")
        self.length, self.batch, self.seed, self.task = length, batch, seed, task
        self.start_step, self.steps, self.rank, self.world = start_step, steps, rank, world
        self._order: tuple[int, torch.Tensor] = (-1, torch.empty(0))

    def __iter__(self) -> Iterator[list[int]]:
        step = self.start_step
        while self.steps is None or step < self.start_step + self.steps:
            yield self.at(step)
            step += 1

    def __len__(self) -> int:
        if self.steps is None:
            raise TypeError("a sampler without end has no length")
        return self.steps

    def at(self, step: int) -> list[int]:
        """The indices of one global step."""
        first = (step * self.world + self.rank) * self.batch
        indices: list[int] = []
        while len(indices) < self.batch:
            epoch, offset = divmod(first + len(indices), self.length)
            indices += self._epoch(epoch)[offset : offset + self.batch - len(indices)].tolist()
        return indices

    def _epoch(self, epoch: int) -> torch.Tensor:
        if self._order[0] != epoch:
            generator = stream(self.seed, self.task, "order", epoch)
            self._order = (epoch, torch.randperm(self.length, generator=generator))
        return self._order[1]
