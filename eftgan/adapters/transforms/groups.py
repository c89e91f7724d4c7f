"""Arithmetic of group convolutions: how many groups a size gives, and which form of them runs fast."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

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


def group_count(in_channels: int, out_channels: int, size: int, parallel: bool) -> int:
    """How many groups a group size gives; a size that does not divide becomes the largest divisor below it."""
    if not parallel:
        return out_channels // largest_divisor(out_channels, size)
    return largest_divisor(math.gcd(in_channels, out_channels), max(out_channels // size, 1))


def added(tensors: Sequence[Tensor]) -> Tensor:
    """Their sum, a new tensor. It starts from 0, which turns the negative zeros of `regroup` into positive ones."""
    total = 0 + tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def regroup(weight: Tensor, groups: int, new_groups: int) -> Tensor:
    """Write a grouped convolution's weight for fewer groups; `new_groups` divides `groups`.

    Each new group holds `groups / new_groups` old ones as a block diagonal: (K, c, taps ...) -> (K, r * c, taps ...).
    """
    if groups == new_groups:
        return weight
    ratio = groups // new_groups
    out_channels, depth, *taps = weight.shape
    blocks = weight.reshape(new_groups, ratio, out_channels // groups, 1, depth, *taps)
    diagonal = torch.eye(ratio, dtype=weight.dtype, device=weight.device)
    diagonal = diagonal.view(1, ratio, 1, ratio, 1, *(1 for _ in taps))
    return (blocks * diagonal).reshape(out_channels, ratio * depth, *taps)


def widened(state: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict whose transforms have narrower groups than those of `like`, written for the wider ones.

    The same function: zeros stand where the narrow groups did not reach. Other tensors stay as they are.
    """

    def wide(weight: Tensor, wanted: Tensor | None) -> Tensor:
        if wanted is None or weight.dim() < 3 or weight.shape == wanted.shape or weight.shape[0] != wanted.shape[0]:
            return weight
        if wanted.shape[1] % weight.shape[1]:
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
