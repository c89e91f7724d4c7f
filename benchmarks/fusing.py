"""The rule of `fusing_pays`: the form of the transform that it chooses, against the other one, by layer shape."""

from collections.abc import Callable, Iterator

import torch

from benchmarks.harness import Ratio, measure, repeat
from eftgan.adapters import ConvTransform

SHAPES = ((64, 32), (256, 8), (512, 4))  # channels, size of the feature map
SIZES = ((1, 16), (2, 8), (4, 16), (4, 32), (8, 16), (8, 64), (16, 64), (32, 16))  # a, b


def benchmarks() -> Iterator[Ratio]:
    """Goal: never slower than the other form, up to noise."""
    for channels, size in SHAPES:
        for a, b in SIZES:
            yield _rule(channels, size, a, b)


def _rule(channels: int, size: int, a: int, b: int, batch: int = 32) -> Ratio:
    transform = ConvTransform(channels, channels, a, b)
    transform.reset_parameters()
    x = torch.randn(batch, channels, size, size, requires_grad=True)

    def step(form: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
        return repeat(lambda: form(x).sum().backward(), 2048 // (channels * size // 16))

    forms = {"fused": step(transform.forward_fused), "separate": step(transform.forward_separate)}
    chosen, other = ("fused", "separate") if transform.fuses else ("separate", "fused")
    name = f"{chosen} transform, {channels} channels, {size}x{size}, a{a} b{b}, forward and backward"
    return measure(name, forms[chosen], forms[other], other, 1.05, rounds=7)
