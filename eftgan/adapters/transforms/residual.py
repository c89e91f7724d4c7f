"""CAM-GAN's transform (Varshney et al. 2021): EFT, and beside the layer a branch that is squashed and added.

    H = ws * F + wd * F + tanh(wr * I)        F: the convolution's output, I: its input

wr is a group 3x3 convolution of the layer's stride, without a bias, and starts at zero.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import skip_init

from eftgan.adapters.layers import CONVOLUTIONS, Layer, axes_of
from eftgan.adapters.transforms.base import Flops, Option, Plan, Planner, Site, Transform
from eftgan.adapters.transforms.conv import ConvTransform
from eftgan.adapters.transforms.eft import Eft, branch_matches
from eftgan.adapters.transforms.groups import group_count
from eftgan.adapters.transforms.kernel import check_whole
from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.adapters.config import AdapterConfig


class Branched(nn.Module):
    """first(y) + tanh(branch(x)): what torch has no layer for. A merged layer gets one input for both."""

    def __init__(self, first: nn.Module, branch: nn.Module) -> None:
        super().__init__()
        self.first, self.branch = first, branch

    def forward(self, y: Tensor, x: Tensor | None = None) -> Tensor:
        return self.first(y) + self.branch(y if x is None else x).tanh()


class ResidualTransform(Transform):
    """ws, wd and wr of one task at one convolution: its output (B, K, H, W) and input (B, C, ...) -> (B, K, H, W)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        a: int,
        b: int,
        branch: int,
        *,
        bias: bool = True,
        stride: int | tuple[int, ...] = 1,
        axes: int = 2,
    ) -> None:
        super().__init__()
        self.features = ConvTransform(out_channels, out_channels, a, b, bias=bias, axes=axes)
        groups = group_count(out_channels, in_channels, branch, parallel=True)
        self.branch = skip_init(CONVOLUTIONS[axes], in_channels, out_channels, 3, stride, 1, groups=groups, bias=False)
        self.set_identity()

    @torch.no_grad()
    def set_identity(self) -> None:
        self.features.set_identity()
        self.branch.weight.zero_()

    def reset_parameters(self) -> None:
        self.features.reset_parameters()
        self.branch.reset_parameters()

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return self.features(y) + self.branch(x).tanh()

    def describe(self) -> dict[str, Option]:
        return {**self.features.describe(), "branch": self.branch.in_channels // self.branch.groups}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        features, branch = self.features.flops(x, out), out.numel() * (2 * self.branch.weight[0].numel() + 1)
        return Flops(features.analytic + branch, features.executed + branch)

    def merged(self, layer: Layer) -> nn.Module:
        """Plain layers under one small module: tanh keeps the branch out of the layer, and BatchNorm out of both."""
        return Branched(self.features.merged(layer), copy.deepcopy(self.branch))

    def standalone(self) -> nn.Module:
        return Branched(self.features.standalone(), copy.deepcopy(self.branch))


@dataclass(frozen=True)
class Residual(Planner):
    """At every convolution. EFT's transform alone goes where a 3x3 branch would have another size than the layer's
    output (transposed convolutions among others), and EFT's diagonal behind linear layers.

    branch: input channels in a group of the branch.
    """

    free: ClassVar[frozenset[str]] = frozenset({"a", "b", "branch"})  # the shapes of the tensors tell

    branch: int = 8

    def __post_init__(self) -> None:
        check_whole("branch", self.branch)

    def check(self, config: "AdapterConfig") -> None:
        if config.mode != "serial":
            raise UserError(f"mode {config.mode} is a setting of kind eft; {config.kind} has a branch of its own")
        Eft().check(config)

    def describe(self, config: "AdapterConfig") -> dict[str, str]:
        return super().describe(config) | {"a": str(config.a), "b": str(config.b)}

    def plan(self, site: Site) -> Plan | str:
        conv, config = site.layer, site.config
        if not isinstance(conv, _ConvNd) or conv.transposed or not branch_matches(conv):
            return Eft().plan(site)
        make = partial(
            ResidualTransform, conv.in_channels, conv.out_channels, *config.group_sizes(site.name), self.branch,
            bias=config.bias, stride=conv.stride, axes=axes_of(conv),
        )  # fmt: skip
        return Plan("both", make)
