"""What the kinds that give a task another weight have in common: the layer's weight seen alike, and their start.

A weight is looked at as (K, c, p): outputs, inputs of a group, taps (a linear layer has one).
"""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.layers import outputs_of, weight_shape
from eftgan.adapters.transforms.base import Plan, Planner, Site, Transform
from eftgan.errors import UserError


@dataclass(frozen=True)
class Kernel:
    """The weight of one layer."""

    layer: str  # its name
    shape: tuple[int, ...]
    outputs: int
    groups: int = 1
    transposed: bool = False
    linear: bool = False

    @classmethod
    def of(cls, site: Site) -> "Kernel":
        layer, shape = site.layer, weight_shape(site.layer)
        if isinstance(layer, _ConvNd):
            return cls(site.name, shape, outputs_of(layer), layer.groups, layer.transposed)
        return cls(site.name, shape, outputs_of(layer), linear=True)

    @property
    def inputs(self) -> int:
        """Of a group."""
        return self.shape[0] // self.groups if self.transposed else self.shape[1]

    @property
    def taps(self) -> int:
        return math.prod(self.shape[2:])

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def placed(self, change: Tensor) -> Tensor:
        """A tensor (K, c, p), or (K, c, 1) for all taps alike, in the order of the weight's own axes."""
        taps = self.shape[2:] if change.shape[2] == self.taps else (1,) * len(self.shape[2:])
        if self.transposed:  # (groups c, K / groups, taps ...)
            change = change.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(0, 1)
        return change.reshape(*change.shape[:2], *taps)


class KernelChange(Transform):
    """A task's weight, made of the layer's and of tensors of its own; `own_bias`, from 0, is added to the layer's.

    Where one of two factors starts at zero, the other must not, or neither would ever get a gradient. The neutral state
    has random numbers there that are fixed by the layer's name; `init: random` draws others, and is neutral too.

    The rank is the one asked for, or a smaller one where a larger would be of no use to the layer.
    """

    rank: int

    def __init__(self, kernel: Kernel, rank: int, *, bias: bool) -> None:
        super().__init__()
        self.kernel, self.asked, self.has_bias = kernel, rank, bias
        self.own_bias = empty(kernel.outputs) if bias else None

    def useful_rank(self) -> int:
        """The rank that was asked for, as far as it is of use to the layer."""
        raise NotImplementedError

    def shapes(self, rank: int) -> dict[str, tuple[int, ...] | None]:
        """Of its factors by name; None for one that is left out."""
        raise NotImplementedError

    def make_factors(self, rank: int) -> None:
        """Factors of this rank, yet to be written; where there were others, they are of their type and device."""
        like = next(self.parameters(), empty(0))
        for name, shape in self.shapes(rank).items():
            made = None if shape is None else nn.Parameter(like.new_empty(shape), like.requires_grad)
            self.register_parameter(name, made)
        self.rank = rank

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        """States of earlier versions have the rank that was asked for everywhere, and biases in linear layers alone."""
        if not state:
            return
        for rank in {self.asked, self.useful_rank()} - {self.rank}:
            shapes = self.shapes(rank)
            if shapes == {name: tuple(state[name].shape) if name in state else None for name in shapes}:
                self.make_factors(rank)
        if self.has_bias and ("own_bias" in state) != (self.own_bias is not None):
            like = next(self.parameters())
            made = nn.Parameter(like.new_empty(self.kernel.outputs), like.requires_grad)
            self.own_bias = made if "own_bias" in state else None

    def set_identity(self) -> None:
        self._begin_with(torch.Generator().manual_seed(zlib.crc32(self.kernel.layer.encode())))

    def reset_parameters(self) -> None:
        self._begin_with(None)

    @torch.no_grad()
    def _begin_with(self, generator: torch.Generator | None) -> None:
        if self.own_bias is not None:
            self.own_bias.zero_()
        self.start(generator)

    def start(self, generator: torch.Generator | None) -> None:
        """Write a neutral state, random numbers drawn from the generator (None: from torch's own)."""
        raise NotImplementedError

    def bias(self, bias: Tensor | None) -> Tensor | None:
        if bias is None or self.own_bias is None:
            return self.own_bias if bias is None else bias
        return bias + self.own_bias

    def change_flops(self) -> int:
        """Cost of `weight`."""
        raise NotImplementedError

    def weight_flops(self) -> int:
        return self.change_flops() + (0 if self.own_bias is None else self.kernel.outputs)


def empty(*shape: int) -> nn.Parameter:
    """A tensor to be written by `start`."""
    return nn.Parameter(torch.empty(shape))


def draw(tensor: Tensor, scale: float, generator: torch.Generator | None) -> None:
    """Normal numbers of this scale, the same on every device."""
    tensor.copy_(torch.randn(tensor.shape, generator=generator, device="cpu") * scale)


def check_whole(option: str, value: int, least: int = 1) -> None:
    """Refuse a rank or group size that is none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{option} must be a whole number, at least {least}, got {value!r}")


def stays_shared(site: Site) -> str | None:
    """Why a layer gets no weight of the task's own; so that kinds compare, these are the layers that EFT leaves out."""
    if isinstance(site.layer, nn.Linear) and site.norm_follows:
        return "a linear layer with the task's own BatchNorm behind it, which stays shared as with eft"
    return None


@dataclass(frozen=True)
class LowRankPlanner(Planner):
    """On every convolution and linear layer but those that EFT leaves shared; with a bias unless BatchNorm undoes it.

    rank: of a task's change, at most.
    """

    rank: int = 1

    def __post_init__(self) -> None:
        check_whole("rank", self.rank)

    def plan(self, site: Site) -> Plan | str:
        if reason := stays_shared(site):
            return reason
        return Plan("weight", self.maker(Kernel.of(site), site.config.bias and not site.norm_follows))

    def maker(self, kernel: Kernel, bias: bool) -> Callable[[], KernelChange]:
        """What makes a new task's change of such a kernel."""
        raise NotImplementedError
