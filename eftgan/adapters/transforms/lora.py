"""Low-rank adaptation (Hu et al. 2021): W + alpha B A, for a convolution with the taps in A.

A rank above those of all matrices (K, c p) would only cost parameters, so a layer's is no larger.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters.transforms.base import Option
from eftgan.adapters.transforms.kernel import Kernel, KernelChange, LowRankPlanner, draw


class LowRank(KernelChange):
    """A (r, c, p) and B (K, r) of one task at one layer; B starts at zero."""

    a: nn.Parameter
    b: nn.Parameter

    def __init__(self, kernel: Kernel, rank: int, alpha: float, *, bias: bool) -> None:
        super().__init__(kernel, rank, bias=bias)
        self.alpha = alpha
        self.make_factors(self.useful_rank())
        self.set_identity()

    def useful_rank(self) -> int:
        return min(self.asked, self.kernel.outputs, self.kernel.inputs * self.kernel.taps)

    def shapes(self, rank: int) -> dict[str, tuple[int, ...] | None]:
        return {"a": (rank, self.kernel.inputs, self.kernel.taps), "b": (self.kernel.outputs, rank)}

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
