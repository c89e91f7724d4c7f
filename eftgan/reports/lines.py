"""What came out so far, in a line or two for the terminal."""

from pathlib import Path

from eftgan.evaluation.metrics import Metric
from eftgan.reports.results import Study, studies
from eftgan.reports.runs import load_runs


def score_lines(folder: Path, after: int) -> list[str]:
    """For each main metric, a task (number `after`, from 0) as it was just learned, and all tasks seen by then."""
    lines = []
    for metric, study in _measured(folder):
        result = study.results(metric)[0]
        learned, average = result.cell(after, after), result.average_after(after)
        if learned and average:
            text = f"{_name(metric)} {result.metric.text(learned.mean)}{metric.unit} just learned"
            over = f", {result.metric.text(average.mean)}{metric.unit} on average over {after + 1} tasks" * (after > 0)
            lines.append(f"{study.tasks[after]}: {text}{over}")
    return lines


def final_lines(folder: Path, after: int) -> list[str]:
    """For each main metric, the average over the tasks that are trained."""
    lines = []
    for metric, study in _measured(folder):
        result = study.results(metric)[0]
        average = result.average_after(after)
        if average:
            over = f" on average over {after + 1} tasks" if after else ""
            lines.append(f"{_name(metric)} {result.metric.text(average.mean)}{metric.unit}{over} ({metric.direction})")
    return lines


def _measured(folder: Path) -> list[tuple[Metric, Study]]:
    found = studies(load_runs([folder]))[:1]
    return [(metric, study) for study in found for metric in study.metrics if metric.main]


def _name(metric: Metric) -> str:
    return f"{metric.name} ({metric.setting})" if metric.setting else metric.name
