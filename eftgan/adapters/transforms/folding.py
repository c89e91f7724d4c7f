"""A convolution and a group convolution behind it or beside it, as one convolution."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.layers import axes_of, convolution, padding_of, with_weights
from eftgan.adapters.transforms.groups import added, regroup


def compose_pointwise(conv: _ConvNd, weight: Tensor, bias: Tensor | None, groups: int) -> nn.Module:
    """A group 1x1 behind a convolution is one convolution whose filters are mixed.

    Where the mixing crosses the convolution's own groups (a depthwise layer), one convolution would need wider
    groups and cost more than the two.
    """
    if groups % conv.groups:
        return nn.Sequential(conv, convolution(weight, bias, groups=groups))
    filters = conv.weight.reshape(groups, -1, *conv.weight.shape[1:])  # (groups, b, C, taps ...)
    mixing = weight.reshape(groups, -1, weight.shape[1])  # (groups, b, b)
    mixed = torch.einsum("goi,gic...->goc...", mixing, filters).reshape(conv.weight.shape)
    if conv.bias is not None:
        moved = torch.einsum("goi,gi->go", mixing, conv.bias.reshape(groups, -1)).reshape(-1)
        bias = moved if bias is None else bias + moved
    return with_weights(conv, mixed, bias)


def fold_parallel(conv: _ConvNd, tau: Tensor, tau_bias: Tensor | None, tau_groups: int) -> nn.Module:
    """A parallel branch adds its taps to the convolution's own, in a kernel that covers both.

    A tap at offset o sees input[stride * i + o]: the convolution's offsets run from -padding to
    kernel - 1 - padding, the branch's from -1 to 1.
    """
    groups = math.gcd(conv.groups, tau_groups)
    padding = padding_of(conv)
    reach = tau.shape[-1] // 2
    before = [max(p, reach) for p in padding]
    after = [max(k - 1 - p, reach) for k, p in zip(conv.kernel_size, padding, strict=True)]

    def placed(weight: Tensor, own_groups: int, first: Sequence[int]) -> Tensor:
        """The weight in the common kernel; `first`: how far its taps reach before offset 0, per axis."""
        margins = []
        for axis in reversed(range(axes_of(conv))):  # F.pad counts axes from the last
            lead = before[axis] - first[axis]
            margins += [lead, before[axis] + after[axis] + 1 - lead - weight.shape[2 + axis]]
        return F.pad(regroup(weight, own_groups, groups), margins)

    weight = placed(conv.weight, conv.groups, padding) + placed(tau, tau_groups, [reach] * len(padding))
    biases = [bias for bias in (conv.bias, tau_bias) if bias is not None]
    return convolution(
        weight, added(biases) if biases else None, groups=groups, stride=conv.stride, padding=tuple(before)
    )
