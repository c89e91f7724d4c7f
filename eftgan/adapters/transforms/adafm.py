"""Modulated kernels of GAN Memory (Cong et al. 2020): a task's own scale and mean of every k x k pattern.

    W_t = gamma * (W - M) / S + beta        M, S: mean and standard deviation over the taps

Held as g = gamma - S and h = beta - M, from 0, it is W + g (W - M) / S + h: the same function and the same path of
Adam, and the start is W to the bit. In linear layers M and S are over the inputs of each output (mFiLM).
With a rank, g and h are products of two factors wherever these are smaller than g and h.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters.transforms.base import Option, Plan, Planner, Site
from eftgan.adapters.transforms.kernel import Kernel, KernelChange, check_whole, draw, stays_shared


class Modulation(KernelChange):
    """g and h of one task at one layer, (K, c, 1) or with a rank (K, r) (c, r)^T; of a linear layer (K, 1, 1)."""

    g: nn.Parameter
    h: nn.Parameter
    g_inputs: nn.Parameter | None
    h_inputs: nn.Parameter | None

    def __init__(self, kernel: Kernel, rank: int = 0, *, bias: bool) -> None:
        super().__init__(kernel, 0 if kernel.linear else rank, bias=bias)
        self.make_factors(self.useful_rank())
        self.set_identity()

    def useful_rank(self) -> int:
        """0, the full form, where factors would not be smaller."""
        outputs, inputs = self.kernel.outputs, self.kernel.inputs
        return self.asked if self.asked * (outputs + inputs) < outputs * inputs else 0

    def shapes(self, rank: int) -> dict[str, tuple[int, ...] | None]:
        inputs = 1 if self.kernel.linear else self.kernel.inputs
        own = (self.kernel.outputs, rank) if rank else (self.kernel.outputs, inputs, 1)
        of_inputs = (inputs, rank) if rank else None
        return {"g": own, "h": own, "g_inputs": of_inputs, "h_inputs": of_inputs}

    def start(self, generator: torch.Generator | None) -> None:
        for outputs, inputs in ((self.g, self.g_inputs), (self.h, self.h_inputs)):
            outputs.zero_()
            if inputs is not None:
                draw(inputs, self.rank**-0.5, generator)

    def pattern(self, weight: Tensor) -> Tensor:
        """(W - M) / S; zero where all taps are alike."""
        axes = (1,) if self.kernel.linear else tuple(range(2, weight.dim()))
        variance, mean = torch.var_mean(weight, axes, keepdim=True)
        return (weight - mean) * torch.where(variance > 0, variance, 1).rsqrt()

    def weight(self, weight: Tensor) -> Tensor:
        scale, shift = (self._placed(*pair) for pair in ((self.g, self.g_inputs), (self.h, self.h_inputs)))
        return weight + scale * self.pattern(weight) + shift

    def _placed(self, outputs: Tensor, inputs: Tensor | None) -> Tensor:
        return self.kernel.placed(outputs if inputs is None else (outputs @ inputs.T)[:, :, None])

    def change_flops(self) -> int:
        """Mean, variance and quotient are 5 per weight; scale, shift and their sums 3."""
        pairs = self.kernel.outputs * self.kernel.inputs
        return 8 * self.kernel.numel + 4 * self.rank * pairs

    def describe(self) -> dict[str, Option]:
        return {"kind": "adafm", "rank": self.rank}


@dataclass(frozen=True)
class AdaFm(Planner):
    """On every convolution with several taps, and on the linear layers that EFT does not leave shared.

    rank: of g and h as (outputs, inputs) matrices where that makes them smaller; 0: full, as the authors have them.
    """

    rank: int = 0

    def __post_init__(self) -> None:
        check_whole("rank", self.rank, least=0)

    def plan(self, site: Site) -> Plan | str:
        kernel = Kernel.of(site)
        if (kernel.inputs if isinstance(site.layer, nn.Linear) else kernel.taps) == 1:
            return "one weight has neither mean nor deviation to be changed"
        return stays_shared(site) or Plan("weight", partial(Modulation, kernel, self.rank, bias=site.config.bias))
