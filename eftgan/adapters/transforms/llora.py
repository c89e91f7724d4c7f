"""LLoRA of CoLoR-GAN (Ali et al. 2025) without its activation: a low-rank kernel whose taps are factored too.

With the activation that the authors' README switches on, both of their ReLUs sit at zero at the start, where the
derivative is zero: no factor of a convolution would ever learn. A layer's rank is no larger than the numbers of its
outputs and inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters.transforms.base import Option
from eftgan.adapters.transforms.kernel import Kernel, KernelChange, LowRankPlanner, draw


class LowRankTaps(KernelChange):
    """A (c, r), B (K, r) and S (r, r, p) of one task: W + alpha sum over i, j of A[., i] B[., j] S[i, j, .].

    S starts at zero.
    """

    a: nn.Parameter
    b: nn.Parameter
    s: nn.Parameter

    def __init__(self, kernel: Kernel, rank: int, alpha: float, *, bias: bool) -> None:
        super().__init__(kernel, rank, bias=bias)
        self.alpha = alpha
        self.make_factors(self.useful_rank())
        self.set_identity()

    def useful_rank(self) -> int:
        return min(self.asked, self.kernel.outputs, self.kernel.inputs)

    def shapes(self, rank: int) -> dict[str, tuple[int, ...] | None]:
        kernel = self.kernel
        return {"a": (kernel.inputs, rank), "b": (kernel.outputs, rank), "s": (rank, rank, kernel.taps)}

    def start(self, generator: torch.Generator | None) -> None:
        for factor in (self.a, self.b):
            draw(factor, self.rank ** (-2 / 3), generator)
        self.s.zero_()

    def weight(self, weight: Tensor) -> Tensor:
        outputs = torch.einsum("ob,abp->oap", self.b, self.s)
        return weight + self.alpha * self.kernel.placed(torch.einsum("ia,oap->oip", self.a, outputs))

    def change_flops(self) -> int:
        kernel, rank = self.kernel, self.rank
        return 2 * rank**2 * kernel.outputs * kernel.taps + (2 * rank + 2) * kernel.numel

    def describe(self) -> dict[str, Option]:
        return {"kind": "llora", "rank": self.rank}


@dataclass(frozen=True)
class Llora(LowRankPlanner):
    """The taps are factors as well."""

    alpha: float = 1.0

    def maker(self, kernel: Kernel, bias: bool) -> Callable[[], KernelChange]:
        return partial(LowRankTaps, kernel, self.rank, self.alpha, bias=bias)
