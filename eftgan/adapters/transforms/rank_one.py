"""BatchEnsemble for lifelong learning (Wen et al., ICLR 2020): a task multiplies every weight by a rank-one matrix.

V = W * (s r^T), so y = (W (x * r)) * s. W trains in the first task and is frozen afterwards.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.layers import weight_shape
from eftgan.adapters.transforms.base import Option, Plan, Planner, Site, Transform
from eftgan.errors import UserError

Start = Literal["signs", "ones"]


class RankOne(Transform):
    """r and s of one task at one layer of the given weight shape.

    r has an entry per input channel (of a group: groups share it), s one per output channel. `own_bias`, from 0, is
    added to the layer's bias. A BatchNorm behind the layer undoes the size of s, not its signs, and the bias.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        groups: int = 1,
        transposed: bool = False,
        bias: bool = True,
        start: Start = "signs",
    ) -> None:
        super().__init__()
        self.shape, self.groups, self.transposed, self.start = shape, groups, transposed, start
        first, second = shape[:2]
        inputs, outputs = (first // groups, second * groups) if transposed else (second, first)
        self.r = nn.Parameter(torch.empty(inputs))
        self.s = nn.Parameter(torch.empty(outputs))
        self.own_bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.set_identity()

    @torch.no_grad()
    def set_identity(self) -> None:
        """Ones, and no bias."""
        self.r.fill_(1.0)
        self.s.fill_(1.0)
        if self.own_bias is not None:
            self.own_bias.zero_()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Random signs, as in the comparison of SupSup (Wortsman et al. 2020); with start "ones" the neutral state."""
        self.set_identity()
        if self.start == "signs":
            for tensor in (self.r, self.s):
                tensor.copy_(torch.randint_like(tensor, 2) * 2 - 1)

    def weight(self, weight: Tensor) -> Tensor:
        """W first, so that a weight in channels-last order stays so."""
        if self.transposed:  # (C, K / groups, taps ...)
            scale = (self.r[:, None] * self.s.view(self.groups, 1, -1)).flatten(0, 1)
        else:  # (K, C / groups, taps ...)
            scale = self.s[:, None] * self.r
        return weight * scale.reshape(*scale.shape, *(1 for _ in weight.shape[2:]))

    def bias(self, bias: Tensor | None) -> Tensor | None:
        if bias is None or self.own_bias is None:
            return self.own_bias if bias is None else bias
        return bias + self.own_bias

    def weight_flops(self) -> int:
        """The outer product, the product with W, and the sum of the biases."""
        return math.prod(self.shape[:2]) + math.prod(self.shape) + (0 if self.own_bias is None else self.s.numel())

    def describe(self) -> dict[str, Option]:
        return {"kind": "rank one", "r": self.r.numel(), "s": self.s.numel()}


@dataclass(frozen=True)
class BatchEnsemble(Planner):
    """r and s for every convolution and linear layer, with a bias of the task's own unless `bias` is off.

    start: what `init: random` draws, "signs" (random signs) or "ones" (nothing: as `init: identity`). Signs make a
    later task forget the features it could start from; `init: previous` keeps them.
    """

    free: ClassVar[frozenset[str]] = frozenset({"start"})

    start: Start = "signs"

    def __post_init__(self) -> None:
        if self.start not in ("signs", "ones"):
            raise UserError(f"start must be signs or ones, got {self.start!r}")

    def plan(self, site: Site) -> Plan:
        layer = site.layer
        make = partial(RankOne, weight_shape(layer), bias=site.config.bias, start=self.start)
        if isinstance(layer, _ConvNd):
            make = partial(make, groups=layer.groups, transposed=layer.transposed)
        return Plan("weight", make)
