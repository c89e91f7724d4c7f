"""From score lines to results: task-by-task matrices, averages, forgetting and growth over seeds."""

import bisect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from eftgan.evaluation.metrics import Metric
from eftgan.reports.growth import Growth
from eftgan.reports.metrics import metrics_in
from eftgan.reports.numbers import deviation, mean
from eftgan.reports.runs import Run
from eftgan.scores import REAL, UNCHANGED, Score

MOST_SHOWN = 24  # columns of a table, rows of a map; of more tasks a selection is shown


def shown_of(count: int, most: int = MOST_SHOWN) -> list[int]:
    """Which of many tasks are shown one by one: evenly spaced, the first and the last among them."""
    return list(range(count)) if count <= most else [round(i * (count - 1) / (most - 1)) for i in range(most)]


class Cells:
    """The scores of one seed by cell: (after task i, on task j), from 0.

    unchanged: tasks after which all earlier ones were the same bits as before, so that their scores still hold.
    """

    def __init__(self, lines: Mapping[tuple[int, int], Score], unchanged: Collection[int] = ()) -> None:
        self.lines = dict(lines)
        self._since: dict[int, int] = {}  # after task i: all scores hold that were measured after this one or later
        self._measured: dict[int, list[int]] = {}  # of task j: after which tasks
        self._carried: dict[tuple[int, int], Score] = {}
        for i in range(max([*unchanged, *(i for i, _ in self.lines)], default=-1) + 1):
            self._since[i] = self._since[i - 1] if i in unchanged and i else i
        for i, j in sorted(self.lines):
            self._measured.setdefault(j, []).append(i)

    def get(self, cell: tuple[int, int]) -> Score | None:
        """The line of a cell, or the earlier one that holds there; none where there is neither."""
        if cell in self.lines:
            return self.lines[cell]
        after, on = cell
        measured = self._measured.get(on, [])
        place = bisect.bisect_right(measured, after) - 1
        if place < 0 or measured[place] < self._since.get(after, after):
            return None
        source = measured[place], on
        if source not in self._carried:
            line = self.lines[source]
            self._carried[source] = replace(line, details={**line.details, "carried": True})
        return self._carried[source]

    def values(self) -> Iterable[Score]:
        """Every line that was written."""
        return self.lines.values()

    def __bool__(self) -> bool:
        return bool(self.lines)


@dataclass(frozen=True)
class Value:
    """A mean over seeds, its sample standard deviation, and how many images it is based on."""

    mean: float
    std: float | None
    seeds: int
    n: frozenset[int] = frozenset()
    carried: bool = False  # not measured again: proven unchanged
    within: float | None = None  # with a single seed: the measurement's own spread, as KID has


@dataclass(frozen=True)
class Result:
    """One method under one metric: the score of task j after task i, for every seed."""

    label: str
    metric: Metric
    tasks: tuple[str, ...]
    seeds: tuple[Cells, ...]

    def cell(self, after: int, on: int) -> Value | None:
        """The score of task `on` after task `after` (both from 0), over the seeds that have it."""
        scores = [score for seed in self.seeds if (score := seed.get((after, on)))]
        value = _value([s.value for s in scores], scores)
        return replace(value, within=_spread(scores[0])) if value and len(scores) == 1 else value

    def average_after(self, after: int) -> Value | None:
        """The mean over the tasks seen so far."""
        return self._over_seeds(lambda seed: _mean([seed.get((after, j)) for j in range(after + 1)]))

    @property
    def final(self) -> Value | None:
        """The mean over all tasks at the end."""
        return self.average_after(len(self.tasks) - 1)

    @property
    def learned(self) -> Value | None:
        """The mean over tasks, each measured just after it was learned."""
        return self._over_seeds(lambda seed: _mean([seed.get((j, j)) for j in range(len(self.tasks))]))

    @property
    def before(self) -> Value | None:
        """The mean over tasks from the second on, each measured just before it was learned."""
        return self._over_seeds(lambda seed: _mean([seed.get((j - 1, j)) for j in range(1, len(self.tasks))]))

    @property
    def forgetting(self) -> Value | None:
        """How much worse the earlier tasks are at the end than when just learned; above 0 is worse."""
        return self._over_seeds(lambda seed: _mean_of(self._worsening(seed)))

    def forgetting_of(self, on: int) -> Value | None:
        """The same for one task."""
        return self._over_seeds(lambda seed: self._worsening(seed)[on])

    def transfer_over(self, reference: "Result") -> Value | None:
        """How much better tasks from the second on are when just learned than the reference's; above 0 is better."""
        sign = -1 if self.metric.lower_is_better else 1
        later = range(1, len(self.tasks))
        alone = {j: reference.cell(j, j) for j in later}

        def gain(seed: Cells) -> float | None:
            pairs = [(seed.get((j, j)), alone[j]) for j in later]
            return _mean_of([sign * (own.value - other.mean) if own and other else None for own, other in pairs])

        return self._over_seeds(gain)

    def ratio_to(self, reference: "Result", on: int) -> Value | None:
        """A task's score just after it was learned, over the reference's."""
        other = reference.cell(on, on)

        def ratio(seed: Cells) -> float | None:
            own = seed.get((on, on))
            return own.value / other.mean if own and other and other.mean else None

        return self._over_seeds(ratio)

    @property
    def method(self) -> str:
        """The method's name in the score lines, whatever its row is called."""
        return next(score.method for seed in self.seeds for score in seed.values())

    def _worsening(self, seed: Cells) -> list[float | None]:
        last = len(self.tasks) - 1
        sign = 1 if self.metric.lower_is_better else -1
        ends = [(seed.get((j, j)), seed.get((last, j))) for j in range(last)]
        return [sign * (end.value - start.value) if start and end else None for start, end in ends]

    def _over_seeds(self, figure: Callable[[Cells], float | None]) -> Value | None:
        values = [value for value in map(figure, self.seeds) if value is not None]
        return _value(values, [score for seed in self.seeds for score in seed.values()])


@dataclass
class Study:
    """All runs over one sequence of tasks: what the report shows together."""

    kind: str
    tasks: tuple[str, ...]
    runs: list[Run] = field(default_factory=list)
    number: int = 0  # from 1 where a report has several studies; 0 where it has one

    def unique(self, name: str) -> str:
        """A name for anchors, labels and files that no other study of the report has."""
        return re.sub(r"[^\w-]+", "-", name) + (f"-{self.number}" if self.number else "")

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(run.label for run in self.runs))

    @property
    def metrics(self) -> list[Metric]:
        """The metrics measured on trained models."""
        lines = (score for run in self.runs for score in run.scores if score.trained_through in self.tasks)
        return metrics_in({score.metric for score in lines})

    @property
    def main(self) -> Metric | None:
        """The metric that the summary speaks of."""
        return self.metrics[0] if self.metrics else None

    def results(self, metric: Metric) -> list[Result]:
        """One result per method, for the methods that have this metric."""
        scale = _scaled(metric, self.runs)
        results = []
        for label in self.labels:
            seeds = [_matrix(run, metric.name) for run in self.runs if run.label == label]
            if any(seeds):
                results.append(Result(label, scale, self.tasks, tuple(seed for seed in seeds if seed)))
        return results

    def floor(self, metric: Metric) -> dict[str, Score]:
        """Real images against real images, by task in the sequence's order: the score of a perfect generator."""
        lines = (score for run in self.runs for score in run.scores if score.metric == metric.name)
        floor = {score.tested_on: score for score in lines if score.trained_through == REAL}
        return {task: floor[task] for task in self.tasks if task in floor}

    def growth(self) -> list[Growth]:
        """Growth of the methods that report it for every task, from the first seed that does.

        A task that was counted again after others is shown as it was then.
        """
        found: dict[str, Growth] = {}
        for run in self.runs:
            cells = sorted(_matrix(run, "growth").lines.items())
            newest = {task: line for (_, task), line in cells}
            if run.label not in found and len(newest) == len(self.tasks):
                ordered = [newest[task] for task in range(len(self.tasks))]
                adapters, details = zip(*((line.value, line.details) for line in ordered), strict=True)
                counted = {cell: line.details for cell, line in cells}
                found[run.label] = Growth(run.label, self.tasks, adapters, details, counted)
        return list(found.values())


def studies(runs: list[Run]) -> list[Study]:
    """Runs grouped by kind and sequence of tasks: figures can only be compared within a group."""
    groups: dict[tuple[str, tuple[str, ...]], Study] = {}
    for run in runs:
        groups.setdefault((run.kind, run.tasks), Study(run.kind, run.tasks)).runs.append(run)
    found = list(groups.values())
    for number, study in enumerate(found, 1):
        study.number = number if len(found) > 1 else 0
    return found


def _matrix(run: Run, metric: str) -> Cells:
    """Of several lines for one cell, the one with the most images, and of those the last."""
    position = {task: i for i, task in enumerate(run.tasks)}
    matrix: dict[tuple[int, int], Score] = {}
    for score in run.scores:
        if score.metric == metric and score.trained_through in position and score.tested_on in position:
            cell = position[score.trained_through], position[score.tested_on]
            if cell not in matrix or score.n >= matrix[cell].n:
                matrix[cell] = score
    said = {position.get(score.trained_through, 0) for score in run.scores if score.metric == UNCHANGED}
    return Cells(matrix, said)


def _scaled(metric: Metric, runs: list[Run]) -> Metric:
    """Accuracies are printed in percent, whether the lines hold shares or percent."""
    values = [score.value for run in runs for score in run.scores if score.metric == metric.name]
    if metric.unit == " %" and any(value > 1 for value in values):
        return replace(metric, scale=1.0)
    return metric


def _mean(scores: list[Score | None]) -> float | None:
    return _mean_of([None if score is None else score.value for score in scores])


def _mean_of(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def _value(values: list[float], scores: list[Score]) -> Value | None:
    if not values:
        return None
    std = deviation(values) if len(values) > 1 and all(map(math.isfinite, values)) else None
    carried = bool(scores) and all(score.details.get("carried") for score in scores)
    return Value(mean(values), std, len(values), frozenset(score.n for score in scores), carried)


def _spread(score: Score) -> float | None:
    """A measurement's own spread, as KID has."""
    std = score.details.get("std")
    return float(std) if isinstance(std, int | float) else None
