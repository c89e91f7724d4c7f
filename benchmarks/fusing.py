"""The rules of `fusing_pays` and `fast_group_size`: the form that is run, against the other one, by layer shape."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.harness import Ratio, measure, repeat
from eftgan.adapters import ConvTransform

SHAPES = ((64, 32), (256, 8), (512, 4))  # channels, size of the feature map
SIZES = ((1, 16), (2, 8), (4, 0), (4, 32), (8, 8), (8, 16), (8, 64), (16, 64), (32, 16))  # a, b


def benchmarks() -> Iterator[Ratio]:
    """Goal: never slower than the other form, up to noise."""
    for channels, size in SHAPES:
        for a, b in SIZES:
            yield _rule(channels, size, a, b)


def _rule(channels: int, size: int, a: int, b: int, batch: int = 32) -> Ratio:
    transform = ConvTransform(channels, channels, a, b)
    transform.reset_parameters()
    x = torch.randn(batch, channels, size, size, requires_grad=True)

    def one_convolution(x: Tensor) -> Tensor:
        weight, bias, groups = transform.fused_parameters()
        return F.conv2d(x, weight, bias, padding=1, groups=groups)

    def step(form: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        return repeat(lambda: form(x).sum().backward(), max(1, channels // 64))

    groups = " + ".join(f"{channels // count} wide" for _, _, count in transform.executed())
    alone = len(transform.executed()) == 1
    other, what = (transform.forward_separate, "as the equation stands") if alone else (one_convolution, "fused")
    name = f"transform a{a} b{b}, {channels} channels, {size}x{size}: run {groups}"
    return measure(name, step(transform), step(other), what, 1.05, rounds=7)
