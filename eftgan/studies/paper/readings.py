"""Our figures: what the finished runs of a row say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eftgan.evaluation.metrics import METRICS
from eftgan.reports.growth import Growth
from eftgan.reports.results import Result, Study, Value
from eftgan.reports.runs import Run, load_runs
from eftgan.studies.paper.tables import Figure, Series


@dataclass(frozen=True)
class Ours:
    """The runs of one row, a seed each."""

    study: Study

    @property
    def runs(self) -> list[Run]:
        return self.study.runs

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.study.tasks

    def text(self, figure: Figure) -> str | None:
        """A figure as it is printed; none where it was not measured."""
        if figure.metric is None:
            count = self._counted(figure.reads)
            return None if count is None else figure.text(count)
        result = self.result(figure.metric)
        return _shown(result, figure.digits, result.final) if result and result.final else None

    def series(self, series: Series, digits: int) -> dict[tuple[int, int], str]:
        """By cell, what is printed there."""
        result = self.result(series.metric)
        if result is None:
            return {}
        found = {}
        for after, on in series.cells(len(self.tasks)):
            value = result.average_after(after) if series.kind == "after" else result.cell(after, on)
            if value:
                found[after, on] = _shown(result, digits, value)
        return found

    def result(self, metric: str) -> Result | None:
        return next(iter(self.study.results(METRICS[metric])), None)

    @property
    def growth(self) -> Growth | None:
        """None where it was not counted for every task."""
        return next(iter(self.study.growth()), None)

    @property
    def seconds(self) -> float | None:
        """Of training, all tasks together, for one seed on average."""
        result = self.result("seconds")
        return result.learned.mean * len(self.tasks) if result and result.learned else None

    def _counted(self, what: str) -> float | None:
        growth = self.growth
        if growth is None:
            return None
        if what == "cost":
            totals = growth.totals()
            return totals[-1] if totals else None
        if what == "parameters":
            return 100 * max(growth.share)
        base, task = (growth.details[-1].get(key) for key in ("flops_base", "flops_task"))
        return 100 * (task / base - 1) if base and task else None


def read_runs(paths: Sequence[Path], label: str) -> Ours | None:
    """What finished runs of one row say; none where there are none."""
    runs = [replace(run, label=label) for run in load_runs(list(paths))] if paths else []
    return Ours(Study(runs[0].kind, runs[0].tasks, runs)) if runs else None


def _shown(result: Result, digits: int, value: Value) -> str:
    return replace(result.metric, digits=digits).text(value.mean, value.std)
