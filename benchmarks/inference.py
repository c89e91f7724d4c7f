"""Inference of one task: merged, against the network without adapters."""

from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.harness import Ratio, measure
from benchmarks.networks import adapted, folded, resnet
from eftgan.adapters import merge_task

FOLDED = "same network without adapters, BatchNorm folded"


@torch.no_grad()
def _compare(name: str, ours: nn.Module, base: nn.Module, inputs: torch.Tensor, goal: float) -> Ratio:
    with torch.no_grad():
        return measure(name, lambda: ours(inputs), lambda: base(inputs), FOLDED, goal)


def benchmarks() -> Iterator[Ratio]:
    """Goals: 1.25 and 1.02."""
    images = torch.randn(64, 3, 32, 32)
    base = folded(resnet())
    merged = merge_task(adapted(resnet(), 8, 16, 1, ("head",)), "t1")
    yield _compare("inference, ResNet-18 a8 b16, merged, batch 64", merged, base, images, 1.25)
    merged = merge_task(adapted(resnet(), 0, 32, 1, ("head",)), "t1")
    yield _compare("inference, ResNet-18 a0 b32, merged, batch 64", merged, base, images, 1.02)
