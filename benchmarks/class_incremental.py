"""Prediction without the task's name: all tasks at once, against a loop over them."""

from collections.abc import Iterator

import torch

from benchmarks.harness import Ratio, measure
from benchmarks.networks import adapted, resnet
from eftgan.adapters import using_task


def benchmarks() -> Iterator[Ratio]:
    """Goal: 0.7 for 10 and 20 tasks."""
    images = torch.randn(8, 3, 32, 32)
    for count in (10, 20):
        network = adapted(resnet(), 8, 16, count, ("head",)).eval()
        names = tuple(f"t{number}" for number in range(1, count + 1))

        @torch.no_grad()
        def together(network=network, names=names) -> None:
            with using_task(network, names):
                network(images.repeat(len(names), 1, 1, 1))

        @torch.no_grad()
        def by_turns(network=network, names=names) -> None:
            for name in names:
                with using_task(network, name):
                    network(images)

        what = "a loop over tasks"
        yield measure(f"class-incremental prediction, {count} tasks, one pass", together, by_turns, what, 0.7, rounds=7)
