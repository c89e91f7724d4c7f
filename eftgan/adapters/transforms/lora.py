"""Low-rank adaptation (Hu et al. 2021): W + alpha B A, for a convolution with the taps in A."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from eftgan.adapters.transforms.base import Option
from eftgan.adapters.transforms.kernel import Kernel, KernelChange, LowRankPlanner, draw, empty


class LowRank(KernelChange):
    """A (r, c, p) and B (K, r) of one task at one layer; B starts at zero."""

    def __init__(self, kernel: Kernel, rank: int, alpha: float, *, bias: bool) -> None:
        super().__init__(kernel, bias=bias)
        self.rank, self.alpha = rank, alpha
        self.a = empty(rank, kernel.inputs, kernel.taps)
        self.b = empty(kernel.outputs, rank)
        self.set_identity()

    def start(self, generator: torch.Generator | None) -> None:
        draw(self.a, self.rank**-0.5, generator)
        self.b.zero_()

    def weight(self, weight: Tensor) -> Tensor:
        """W first, so that a weight in channels-last order stays so."""
        change = (self.b @ self.a.flatten(1)).unflatten(1, self.a.shape[1:])  # (K, c, p)
        return weight + self.alpha * self.kernel.placed(change)

    def change_flops(self) -> int:
        return (2 * self.rank + 2) * self.kernel.numel

    def describe(self) -> dict[str, Option]:
        return {"kind": "lora", "rank": self.rank}


@dataclass(frozen=True)
class Lora(LowRankPlanner):
    """W + alpha B A."""

    alpha: float = 1.0

    def maker(self, kernel: Kernel, bias: bool) -> Callable[[], KernelChange]:
        return partial(LowRank, kernel, self.rank, self.alpha, bias=bias)
