"""Prediction without the task's name: all tasks in one pass, against a loop over them."""

from collections.abc import Iterator

import torch

from benchmarks.harness import Ratio, measure
from benchmarks.networks import adapted, resnet
from eftgan.adapters import Together, merge_task, using_task


def benchmarks() -> Iterator[Ratio]:
    """Goal: 0.7 for 10 and 20 tasks."""
    for tasks in (10, 20):
        for batch in (1, 8, 32):
            yield from _all_tasks(tasks, batch)


@torch.no_grad()
def _all_tasks(tasks: int, batch: int) -> list[Ratio]:
    images = torch.randn(batch, 3, 32, 32)
    network = adapted(resnet(), 8, 16, tasks, ("head",)).eval()
    names = [f"t{number}" for number in range(1, tasks + 1)]
    together = Together(network, names)

    def by_turns() -> None:
        for name in names:
            with using_task(network, name):
                network(images)

    merged = [merge_task(network, name) for name in names]

    def merged_by_turns() -> None:
        for each in merged:
            each(images)

    title = f"class-incremental prediction, {tasks} tasks, one pass, batch {batch}"
    references = {"a loop over tasks": by_turns, "a loop over merged tasks": merged_by_turns}
    return [measure(title, lambda: together(images), other, what, 0.7, rounds=5) for what, other in references.items()]
