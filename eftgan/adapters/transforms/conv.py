"""EFT at a convolution: two small group convolutions per task (Verma et al., CVPR 2021, section 2.1.1).

Serial ("sequential" in the paper), equations 2 to 4:   H = ws * F + gamma * (wd * F)   F: the convolution's output
Parallel, equations 5 and 6:   H' = F + tau * I                                         I: the convolution's input
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import skip_init

from eftgan.adapters.layers import CONVOLUTIONS, Convolution, Layer, NotMergeable, computes_as_torch, convolution
from eftgan.adapters.transforms.base import Flops, Option, Transform
from eftgan.adapters.transforms.folding import compose_pointwise, fold_parallel
from eftgan.adapters.transforms.groups import (
    added,
    check_group_sizes,
    fast_group_size,
    fusing_pays,
    group_count,
    regroup,
)

CONVOLVE: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class ConvTransform(Transform):
    """ws and wd of one task at one convolution: (B, C, H, W) -> (B, K, H / stride, W / stride).

    Serial transforms have C = K and stride 1, and start as the identity. Parallel ones see the shared layer's
    input, take its stride, and start at zero, so that the layer's output is unchanged in both cases. `axes` is 1, 2
    or 3 as the layer's convolution has; ws has 3 taps along each. A serial transform in `residual` form holds what is
    added to the identity: the function is the same, but weight decay then pulls it to the identity, not to zero.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        a: int,
        b: int,
        *,
        bias: bool = True,
        parallel: bool = False,
        stride: int | tuple[int, ...] = 1,
        axes: int = 2,
        residual: bool = False,
    ) -> None:
        super().__init__()
        check_group_sizes(a, b)
        self.parallel, self.axes, self.residual = parallel, axes, residual
        self.stride = (stride,) * axes if isinstance(stride, int) else stride

        def grouped(size: int, kernel: int) -> Convolution | None:
            if size == 0:
                return None
            groups = group_count(in_channels, out_channels, size, parallel)
            # Its own initialisation would be overwritten, and would draw from the random stream of the run.
            return skip_init(
                CONVOLUTIONS[axes], in_channels, out_channels, kernel, self.stride, kernel // 2, groups=groups,
                bias=bias,
            )  # fmt: skip

        self.spatial = grouped(a, 3)  # ws
        self.depth = grouped(b, 1)  # wd
        self.set_identity()

    @property
    def convolutions(self) -> list[Convolution]:
        return [conv for conv in (self.spatial, self.depth) if conv is not None]

    @torch.no_grad()
    def set_identity(self) -> None:
        """Serial: a one at each channel's own (centre) tap of ws, or of wd where there is no ws. Parallel: zero."""
        for conv in self.convolutions:
            conv.weight.zero_()
            if conv.bias is not None:
                conv.bias.zero_()
        if not self.parallel and not self.residual:
            self.convolutions[0].weight.add_(_identity(self.convolutions[0]))

    def taps(self, conv: Convolution) -> Tensor:
        """The weight that ws or wd is computed with."""
        return conv.weight + _identity(conv) if self.residual and conv is self.convolutions[0] else conv.weight

    def reset_parameters(self) -> None:
        """PyTorch's own random initialisation."""
        for conv in self.convolutions:
            conv.reset_parameters()

    @property
    def fuses(self) -> bool:
        """Whether ws and wd run as one group convolution: where that is exact, and faster as a rule."""
        if self.spatial is None or self.depth is None:
            return False
        few, many = sorted((self.spatial.groups, self.depth.groups))
        sizes = [conv.out_channels // conv.groups for conv in (self.spatial, self.depth)]
        return many % few == 0 and fusing_pays(*sizes)

    def fused_parameters(self) -> tuple[Tensor, Tensor | None, int]:
        """Weight, bias and groups of the one convolution that equals ws + wd exactly."""
        convolutions = self.convolutions
        groups = self._fast_groups(math.gcd(*(conv.groups for conv in convolutions)))
        kernel = max(conv.kernel_size[0] for conv in convolutions)
        weights = [
            F.pad(regroup(self.taps(conv), conv.groups, groups), [(kernel - conv.kernel_size[0]) // 2] * 2 * self.axes)
            for conv in convolutions
        ]
        biases = [conv.bias for conv in convolutions if conv.bias is not None]
        return added(weights), added(biases) if biases else None, groups

    def _fast_groups(self, groups: int) -> int:
        conv = self.convolutions[0]
        if conv.in_channels != conv.out_channels:
            return groups
        return conv.out_channels // fast_group_size(conv.out_channels, conv.out_channels // groups)

    def executed(self) -> list[tuple[Tensor, Tensor | None, int]]:
        """Weight, bias and groups of the convolutions that the forward runs and adds."""
        if self.fuses:
            return [self.fused_parameters()]
        groups = [self._fast_groups(conv.groups) for conv in self.convolutions]
        return [
            (regroup(self.taps(conv), conv.groups, fewer), conv.bias, fewer)
            for conv, fewer in zip(self.convolutions, groups, strict=True)
        ]

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = (
            CONVOLVE[self.axes](x, weight, bias, self.stride, padding=weight.shape[-1] // 2, groups=groups)
            for weight, bias, groups in self.executed()
        )
        return first + rest[0] if rest else first

    def forward_separate(self, x: Tensor) -> Tensor:
        """The equation as it stands: one convolution for ws, one for wd. The forward equals it up to rounding."""
        first, *rest = self.convolutions
        out: Tensor = first(x) + x if self.residual else first(x)
        return out + rest[0](x) if rest else out

    def describe(self) -> dict[str, Option]:
        """The effective group sizes; 0 where a convolution is left out."""
        a, b = (conv.out_channels // conv.groups if conv else 0 for conv in (self.spatial, self.depth))
        return {"kind": "conv", "a": a, "b": b}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        """ws and wd apart, and the convolutions that run for them."""
        runs = [(weight, bias) for weight, bias, _ in self.executed()]
        equations = [(conv.weight, conv.bias) for conv in self.convolutions]
        analytic, executed = (
            sum(out.numel() * (2 * weight[0].numel() + (bias is not None)) for weight, bias in convolutions)
            for convolutions in (equations, runs)
        )
        return Flops(analytic, executed)

    def merged(self, layer: Layer) -> nn.Module:
        """One convolution where that is exact.

        A serial 3x3 transform stays a layer of its own: behind a zero-padded convolution it has no equal single
        convolution at the border.
        """
        if isinstance(layer, _ConvNd) and not layer.transposed and computes_as_torch(layer):
            if self.parallel:
                return fold_parallel(layer, *self.fused_parameters())
            if self.spatial is None:
                return compose_pointwise(layer, *self.fused_parameters())
        if self.parallel:
            raise NotMergeable(f"a parallel transform cannot be merged into {layer}, which has its own forward")
        return nn.Sequential(layer, self.standalone())

    def standalone(self) -> nn.Module:
        """One convolution, also where training runs two: behind one, BatchNorm folds."""
        weight, bias, groups = self.fused_parameters()
        return convolution(weight, bias, groups=groups, stride=self.stride, padding=weight.shape[-1] // 2)


def _identity(conv: Convolution) -> Tensor:
    """The weight of such a convolution that changes nothing: a one at each channel's own (centre) tap."""
    identity = torch.zeros_like(conv.weight)
    channels = torch.arange(conv.out_channels, device=identity.device)
    centre = (size // 2 for size in conv.kernel_size)
    own: tuple[Tensor | int, ...] = (channels, channels % identity.shape[1], *centre)
    identity[own] = 1.0
    return identity
