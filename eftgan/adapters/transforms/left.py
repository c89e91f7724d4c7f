"""LeFT of LFS-GAN (Seo et al. 2023): kernels multiplied by a low-rank tensor, and a low-rank one added.

    M[o, i, p] = sum over a of V[i, a] relu(sum over b of U[o, b] S[a, b, p] + (A1 B1^T)[o, p])
    W_t = W * M + (A2 B2^T)[i, p]
    of a linear layer: W_t = W * (U V^T) + A2 B2^T

In the authors' code both factors of every added term start at zero, so that neither ever gets a gradient, and with
rank above 1 all components start alike and stay so. Here A starts at zero and B does not, and of the components one
is all ones, while the others begin apart with V at zero. A layer's rank is no larger than the numbers of its outputs
and inputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters.transforms.base import Option
from eftgan.adapters.transforms.kernel import Kernel, KernelChange, LowRankPlanner, draw


class Left(KernelChange):
    """U (K, r), S (r, r, p) and V (c, r) of one task at one layer, and A1, B1, A2, B2 unless `additive` is off.

    A linear layer has neither S nor A1 and B1, and A2 (K, r), B2 (c, r).
    """

    u: nn.Parameter
    s: nn.Parameter | None
    v: nn.Parameter
    a1: nn.Parameter | None
    b1: nn.Parameter | None
    a2: nn.Parameter | None
    b2: nn.Parameter | None

    def __init__(self, kernel: Kernel, rank: int, *, additive: bool, bias: bool) -> None:
        super().__init__(kernel, rank, bias=bias)
        self.additive, self.by_taps = additive, not kernel.linear
        self.make_factors(self.useful_rank())
        self.set_identity()

    def useful_rank(self) -> int:
        return min(self.asked, self.kernel.outputs, self.kernel.inputs)

    def shapes(self, rank: int) -> dict[str, tuple[int, ...] | None]:
        outputs, inputs, taps = self.kernel.outputs, self.kernel.inputs, self.kernel.taps
        a2, b2 = (inputs, taps) if self.by_taps else (outputs, inputs)
        return {
            "u": (outputs, rank),
            "s": (rank, rank, taps) if self.by_taps else None,
            "v": (inputs, rank),
            "a1": (outputs, rank) if self.additive and self.by_taps else None,
            "b1": (taps, rank) if self.additive and self.by_taps else None,
            "a2": (a2, rank) if self.additive else None,
            "b2": (b2, rank) if self.additive else None,
        }

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        """In earlier versions linear layers had the form of convolutions with one tap."""
        if state and self.kernel.linear and ("s" in state) != self.by_taps:
            self.by_taps = "s" in state
            self.make_factors(self.rank)
        super().adopt(state)

    def start(self, generator: torch.Generator | None) -> None:
        draw(self.u, 1.0, generator)
        self.v.zero_()
        self.u[:, 0] = self.v[:, 0] = 1.0
        if self.s is not None:
            draw(self.s, self.rank**-0.5, generator)
            self.s[0] = 0.0
            self.s[0, 0] = 1.0
        for zero, other in ((self.a1, self.b1), (self.a2, self.b2)):
            if zero is not None and other is not None:
                zero.zero_()
                draw(other, self.rank**-0.5, generator)

    def weight(self, weight: Tensor) -> Tensor:
        if self.s is None:
            changed = weight * (self.u @ self.v.T)
            return changed if self.a2 is None or self.b2 is None else changed + self.a2 @ self.b2.T
        inner = torch.einsum("ob,abp->oap", self.u, self.s)
        if self.a1 is not None and self.b1 is not None:
            inner = inner + (self.a1 @ self.b1.T)[:, None]
        changed = weight * self.kernel.placed(torch.einsum("ia,oap->oip", self.v, inner.relu()))
        if self.a2 is None or self.b2 is None:
            return changed
        added = (self.a2 @ self.b2.T)[None].expand(self.kernel.outputs, -1, -1)
        return changed + self.kernel.placed(added)

    def change_flops(self) -> int:
        kernel, rank = self.kernel, self.rank
        if self.s is None:
            return (2 * rank + 1) * kernel.numel * (1 if self.a2 is None else 2)
        inner = (2 * rank**2 + rank) * kernel.outputs * kernel.taps
        if self.a1 is None:
            return inner + (2 * rank + 1) * kernel.numel
        added = (2 * rank * (kernel.outputs + kernel.inputs) + rank * kernel.outputs) * kernel.taps
        return inner + added + (2 * rank + 2) * kernel.numel

    def describe(self) -> dict[str, Option]:
        return {"kind": "left", "rank": self.rank}


@dataclass(frozen=True)
class LeftPlanner(LowRankPlanner):
    """Factors that multiply a kernel, and others that are added unless `additive` is off."""

    additive: bool = True

    def maker(self, kernel: Kernel, bias: bool) -> Callable[[], KernelChange]:
        return partial(Left, kernel, self.rank, additive=self.additive, bias=bias)
