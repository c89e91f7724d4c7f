"""How a network grows with its tasks."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OWNED = ("adapter", "norm", "head", "kept")  # what a task may have of its own


@dataclass(frozen=True)
class Growth:
    """What each task added to one method's network, as it was last counted."""

    label: str
    tasks: tuple[str, ...]
    adapters: tuple[float, ...]  # adapter parameters / base parameters
    details: tuple[dict[str, Any], ...]
    # Details by (after task i, of task j): all counts, in order. Empty: every task was counted once, when learned.
    counted: Mapping[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    @property
    def share(self) -> tuple[float, ...]:
        """What each task adds, over the base network: its adapters, or its whole network where nothing is shared."""
        if not self.whole_networks:
            return self.adapters
        return tuple(_parameters(details, *OWNED) / self._base for details in self.details)

    @property
    def whole_networks(self) -> bool:
        """Whether every task has a network of its own and nothing of the base network is shared."""
        return self._base > 0 and self._in_common == 0

    @property
    def adapters_in_common(self) -> bool:
        """Whether tasks have no adapters of their own, but the network computes with adapters."""
        costs = [(details.get("flops_task") or 0, details.get("flops_base") or 0) for details in self.details]
        return not any(self.share) and any(task > base > 0 for task, base in costs)

    def totals(self) -> list[float] | None:
        """Parameters in use after each task, as a multiple of the base network; of each task the newest count."""
        if not self._base:
            return None
        counted = self.counted or {(task, task): details for task, details in enumerate(self.details)}
        owned, changes = [0] * len(self.tasks), [0] * len(self.tasks)
        for (after, task), details in counted.items():
            before, owned[task] = owned[task], _parameters(details, *OWNED)
            changes[after] += owned[task] - before
        return [(self._in_common + all_owned) / self._base for all_owned in itertools.accumulate(changes)]

    @property
    def _base(self) -> int:
        """0 where the score lines do not say for every task."""
        return min(_parameters(details, "base") for details in self.details)

    @property
    def _in_common(self) -> int:
        """What all tasks use of the base: without the layers that only serve as the pattern of a task's own."""
        if self.details[0].get("shared_parameters") == 0:
            return 0  # a task's own layers may be narrower than their patterns
        return self._base - _parameters(self.details[0], "norm", "head")


def _parameters(details: dict[str, Any], *parts: str) -> int:
    bits = (details.get("adapter_bits") or 0) if "adapter" in parts else 0
    return sum(details.get(f"{part}_parameters") or 0 for part in parts) + bits // 32
