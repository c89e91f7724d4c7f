"""A task computes with some of a layer's weights: a mask of one bit per weight, and a bias of the task's own."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters.layers import outputs_of, weight_shape
from eftgan.adapters.transforms.base import Option, Plan, Planner, Site, Transform
from eftgan.tensors import pack_bits, unpack_bits


class Mask(Transform):
    """Which weights of one layer a task sees; the others are 0 to it.

    The mask is kept as packed bits, which is also what files and resume states hold. `own_bias`, from 0, is added to
    the layer's bias where it has one.
    """

    bits: Tensor

    def __init__(self, shape: tuple[int, ...], *, bias: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("bits", pack_bits(torch.ones(shape, dtype=torch.bool)))
        self.own_bias = nn.Parameter(torch.zeros(bias)) if bias else None

    @property
    def kept(self) -> Tensor:
        """True where the task sees the weight."""
        return unpack_bits(self.bits, self.shape)

    @torch.no_grad()
    def keep(self, kept: Tensor) -> None:
        """Take another mask."""
        self.bits.copy_(pack_bits(kept))

    @torch.no_grad()
    def set_identity(self) -> None:
        """All weights, and no bias."""
        self.keep(torch.ones(self.shape, dtype=torch.bool, device=self.bits.device))
        if self.own_bias is not None:
            self.own_bias.zero_()

    def reset_parameters(self) -> None:
        """The neutral state: a mask has nothing that could be drawn."""
        self.set_identity()

    def weight(self, weight: Tensor) -> Tensor:
        """Filled, not multiplied: what another task writes into hidden entries leaves no trace, not even in a sign.

        On a copy, which keeps channels-last order.
        """
        return weight.clone().masked_fill_(~self.kept, 0.0)

    def bias(self, bias: Tensor | None) -> Tensor | None:
        return bias if bias is None or self.own_bias is None else bias + self.own_bias

    def mask_bits(self) -> int:
        return math.prod(self.shape)

    def weight_flops(self) -> int:
        """The product with the mask, and the sum of the biases."""
        return math.prod(self.shape) + (0 if self.own_bias is None else self.own_bias.numel())

    def describe(self) -> dict[str, Option]:
        return {"kind": "mask", "bits": math.prod(self.shape)}


@dataclass(frozen=True)
class Masks(Planner):
    """A mask for the weight of every convolution and linear layer."""

    def plan(self, site: Site) -> Plan:
        bias = 0 if site.layer.bias is None else outputs_of(site.layer)
        return Plan("weight", partial(Mask, weight_shape(site.layer), bias=bias))
