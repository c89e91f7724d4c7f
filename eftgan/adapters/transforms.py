"""The paper's feature transformations: small per-task modules that adapt a shared layer's output.

Serial, equation 4:   H = ws * F + gamma * (wd * F)     F: output of the shared convolution
Parallel, section 2.1.3:   H = F + tau * I              I: input of the shared convolution
Fully connected, section 2.1.2:   h = e . f             e: one scale per output feature
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from eftgan.errors import UserError


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is not above `limit`."""
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)


def check_group_sizes(a: int, b: int) -> None:
    """Refuse group sizes that describe no transformation."""
    if not all(isinstance(size, int) and not isinstance(size, bool) for size in (a, b)):
        raise UserError(f"group sizes must be whole numbers, got a={a!r}, b={b!r}")
    if a < 0 or b < 0:
        raise UserError(f"group sizes must not be negative, got a={a}, b={b}")
    if a == 0 and b == 0:
        raise UserError("a=0 and b=0 leave no transformation; set at least one of them")


def regroup(weight: Tensor, groups: int, new_groups: int) -> Tensor:
    """Write a grouped convolution's weight for fewer groups; `new_groups` divides `groups`.

    Each new group holds `groups / new_groups` old ones as a block diagonal: (K, c, kh, kw) -> (K, r * c, kh, kw).
    """
    if groups == new_groups:
        return weight
    ratio = groups // new_groups
    out_channels, depth, height, width = weight.shape
    blocks = weight.reshape(new_groups, ratio, out_channels // groups, 1, depth, height, width)
    diagonal = torch.eye(ratio, dtype=weight.dtype, device=weight.device).view(1, ratio, 1, ratio, 1, 1, 1)
    return (blocks * diagonal).reshape(out_channels, ratio * depth, height, width)


def widened(state: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict whose transforms have narrower groups than those of `like`, written for the wider ones.

    The same function: zeros stand where the narrow groups did not reach. Other tensors stay as they are.
    """

    def wide(weight: Tensor, wanted: Tensor | None) -> Tensor:
        if wanted is None or weight.dim() != 4 or weight.shape == wanted.shape or wanted.shape[1] % weight.shape[1]:
            return weight
        channels = weight.shape[0]
        return regroup(weight, channels // weight.shape[1], channels // wanted.shape[1])

    return {key: wide(tensor, like.get(key)) for key, tensor in state.items()}


def fusing_pays(a: int, b: int) -> bool:
    """Whether one convolution of group size max(a, b) is faster than two of group sizes a and b.

    A rule, so that results never depend on timing; docs/benchmarks.md has the measurements behind it. One pass over
    the feature map is saved. With b <= a that costs nothing; beyond, all 9 taps get as wide as b, which pays up to 16
    channels. A depthwise convolution (a = 1) has fast kernels of its own and stays alone.
    """
    return b <= (a if a == 1 else max(a, 16))


def fast_group_size(channels: int, size: int) -> int:
    """The group size that a group convolution is run with: its own, or a small multiple that is faster.

    CPU kernels take channels by eights, others run several times slower: such groups are run in pairs or fours, with
    zeros between them (the same rule and the same measurements as above).
    """
    wider = math.lcm(size, 8)
    return wider if size > 1 and wider <= 16 and channels % wider == 0 else size


class ConvTransform(nn.Module):
    """ws and wd of one task at one convolution: (B, C, H, W) -> (B, K, H / stride, W / stride).

    Serial transforms have C = K and stride 1, and start as the identity. Parallel ones see the shared layer's
    input, take its stride, and start at zero, so that the layer's output is unchanged in both cases.
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
        stride: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__()
        check_group_sizes(a, b)
        self.parallel, self.stride = parallel, stride

        def grouped(size: int, kernel: int) -> nn.Conv2d | None:
            if size == 0:
                return None
            groups = group_count(in_channels, out_channels, size, parallel)
            # Its own initialisation would be overwritten, and would draw from the random stream of the run.
            return skip_init(
                nn.Conv2d, in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=bias
            )

        self.spatial = grouped(a, 3)  # ws
        self.depth = grouped(b, 1)  # wd
        self.set_identity()

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        return [conv for conv in (self.spatial, self.depth) if conv is not None]

    @torch.no_grad()
    def set_identity(self) -> None:
        """Serial: a one at each channel's own (centre) tap of ws, or of wd where there is no ws. Parallel: zero."""
        for conv in self.convolutions:
            conv.weight.zero_()
            if conv.bias is not None:
                conv.bias.zero_()
        if not self.parallel:
            conv = self.convolutions[0]
            centre = conv.kernel_size[0] // 2
            channels = torch.arange(conv.out_channels, device=conv.weight.device)
            conv.weight[channels, channels % conv.weight.shape[1], centre, centre] = 1.0

    def reset_parameters(self) -> None:
        """PyTorch's own random initialisation."""
        for conv in self.convolutions:
            conv.reset_parameters()

    @property
    def fuses(self) -> bool:
        """Whether ws and wd run as one group convolution: where that is exact, and faster as a rule."""
        if len(self.convolutions) < 2:
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
            F.pad(regroup(conv.weight, conv.groups, groups), [(kernel - conv.kernel_size[0]) // 2] * 4)
            for conv in convolutions
        ]
        biases = [conv.bias for conv in convolutions]
        bias = None if biases[0] is None else sum(biases)
        return sum(weights), bias, groups

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
            (regroup(conv.weight, conv.groups, fewer), conv.bias, fewer)
            for conv, fewer in zip(self.convolutions, groups, strict=True)
        ]

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = (
            F.conv2d(x, weight, bias, self.stride, padding=weight.shape[-1] // 2, groups=groups)
            for weight, bias, groups in self.executed()
        )
        return first + rest[0] if rest else first

    def forward_separate(self, x: Tensor) -> Tensor:
        """The equation as it stands: one convolution for ws, one for wd. The forward equals it up to rounding."""
        first, *rest = self.convolutions
        out = first(x)
        return out + rest[0](x) if rest else out


def group_count(in_channels: int, out_channels: int, size: int, parallel: bool) -> int:
    """How many groups a group size gives; a size that does not divide becomes the largest divisor below it."""
    if not parallel:
        return out_channels // largest_divisor(out_channels, size)
    return largest_divisor(math.gcd(in_channels, out_channels), max(out_channels // size, 1))


class LinearTransform(nn.Module):
    """e of one task at one fully connected layer: (..., K) -> (..., K)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(features))
        self.set_identity()

    def set_identity(self) -> None:
        nn.init.ones_(self.scale)

    def reset_parameters(self) -> None:
        """Random scales around one: a diagonal has no PyTorch initialisation of its own."""
        nn.init.normal_(self.scale, 1.0, 0.02)

    def forward(self, f: Tensor) -> Tensor:
        return f * self.scale
