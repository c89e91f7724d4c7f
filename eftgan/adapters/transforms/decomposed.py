"""Additive parameter decomposition (Yoon et al., ICLR 2020): a task's weight is the shared one, masked, plus its own.

V = sigma * sigmoid(v) + tau, sigma being the layer's weight, v one number per output and tau sparse. In the neutral
state v is 0 and tau half of sigma, so that V is sigma to the bit; the authors start from tau = sigma and v near 0.
Tasks of a group may have a further part in common, which is added as well.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.layers import Layer, outputs_of
from eftgan.adapters.transforms.base import Option, Plan, Planner, Site, Transform


class Decomposed(Transform):
    """v, tau and, where the layer has a bias, the task's own in its place.

    `common`: what the tasks of a group have in common, where there is one; the first of them counts it.
    """

    common: Tensor | None
    counts: Tensor | None

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._sigma_of = (layer,)  # in a tuple: not a module of this one
        self.axis = int(isinstance(layer, _ConvNd) and layer.transposed)  # of outputs (of a group: groups share v)
        self.v = nn.Parameter(torch.empty(layer.weight.shape[self.axis]))
        self.tau = nn.Parameter(torch.empty_like(layer.weight))
        self.own_bias = None if layer.bias is None else nn.Parameter(torch.empty(outputs_of(layer)))
        self.register_buffer("common", None)
        self.register_buffer("counts", None)
        self.set_identity()

    @torch.no_grad()
    def set_identity(self) -> None:
        """Half of sigma is masked away and comes back as the task's own: exact, since halves are."""
        (layer,) = self._sigma_of
        self.common = self.counts = None
        self.v.zero_()
        self.tau.copy_(layer.weight / 2)
        if self.own_bias is not None and layer.bias is not None:
            self.own_bias.copy_(layer.bias)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The authors' start: the task's own part is a copy of the shared one, under a mask near one half."""
        self.set_identity()
        self.v.normal_(0, 0.01)
        self.tau.mul_(2)

    @torch.no_grad()
    def drop_below(self, size: float) -> Tensor:
        """Entries of tau that are not larger than this become 0; their values, 0 elsewhere, are returned."""
        large = self.tau.abs() > size
        small = self.tau * ~large
        self.tau.mul_(large)
        return small

    @torch.no_grad()
    def take_back_common(self) -> None:
        """Make what is common a part of tau again."""
        if self.common is not None:
            self.tau.add_(self.common)
        self.common = self.counts = None

    @torch.no_grad()
    def give_common(self, common: Tensor, rest: Tensor, *, first: bool) -> None:
        """Divide tau into what a group has in common and the rest."""
        self.tau.copy_(rest)
        self.common, self.counts = common.clone(), torch.tensor(first, device=common.device)

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        if state and ("common" in state) != (self.common is not None):
            self.common = torch.zeros_like(self.tau.detach()) if "common" in state else None
            self.counts = torch.tensor(False, device=self.tau.device) if "common" in state else None

    def mask(self, weight: Tensor) -> Tensor:
        """One number per output, in a form that multiplies the weight."""
        return torch.sigmoid(self.v).view(*(-1 if axis == self.axis else 1 for axis in range(weight.dim())))

    def weight(self, weight: Tensor) -> Tensor:
        own = weight * self.mask(weight) + self.tau
        return own if self.common is None else own + self.common

    def bias(self, bias: Tensor | None) -> Tensor | None:
        return self.own_bias

    def weight_flops(self) -> int:
        """The mask, the product with sigma and the sums."""
        return self.v.numel() + (2 + (self.common is not None)) * math.prod(self.tau.shape)

    def kept_parameters(self) -> int:
        """Zeros of tau are not counted: a sparse file would leave them out. A group's common part counts once."""
        rest = sum(p.numel() for name, p in self.named_parameters() if name != "tau")
        common = 0 if self.common is None or not self.counts else int(torch.count_nonzero(self.common))
        return rest + int(torch.count_nonzero(self.tau)) + common

    def describe(self) -> dict[str, Option]:
        return {"kind": "decomposed", "own": int(torch.count_nonzero(self.tau))}


@dataclass(frozen=True)
class Apd(Planner):
    """A mask per output, a sparse own part and, where the layer has a bias, an own one for every layer."""

    free = frozenset({"own"})

    def plan(self, site: Site) -> Plan:
        return Plan("weight", partial(Decomposed, site.layer))
