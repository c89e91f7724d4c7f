"""What was measured while tasks trained: their curves, a row for each, and which first task was too short."""

from collections.abc import Iterator

from eftgan.evaluation.metrics import METRICS, Metric
from eftgan.evaluation.metrics.curve import Curve, read_curve
from eftgan.reports import figures
from eftgan.reports.items import Caution, Cell, Figure, Heading, Item, Table
from eftgan.reports.numbers import extent
from eftgan.reports.results import Study, shown_of

MOST_LINES = 8  # of a figure, and figures of a page
MEANING = (
    "Late gain: by which share the best value fell in the second half of the task's steps; where it is large, more "
    "steps would have helped."
)

Curves = dict[tuple[str, str], Curve]  # by method and task


def while_training(study: Study) -> Iterator[Item]:
    """The curves of one run per method: one seed is enough to see."""
    found = _curves(study)
    metrics = list(dict.fromkeys(curve.metric for curve in found.values()))
    for metric in (METRICS[name] for name in metrics if name in METRICS):
        curves = {key: curve for key, curve in found.items() if curve.metric == metric.name}
        yield Heading(f"{metric.name} while training", study.unique(f"training-{metric.name}"))
        warnings = dict.fromkeys(curve.warning for curve in curves.values())
        yield from (Caution(f"{warning}.") for warning in warnings if warning)
        yield from _figures(study, metric, curves)
        yield _table(study, metric, curves)


def _curves(study: Study) -> Curves:
    curves: Curves = {}
    for run in study.runs:
        for index, task in enumerate(study.tasks):
            curve = read_curve(run.folder.curve(index, task))
            if curve is not None and curve.points:
                curves.setdefault((run.label, task), curve)
    return curves


def _figures(study: Study, metric: Metric, curves: Curves) -> Iterator[Figure]:
    """Of one method, all its tasks in one; of several, a figure for each task."""
    tasks = [task for task in study.tasks if any(of == task for _, of in curves)]
    shown = [tasks[place] for place in shown_of(len(tasks), MOST_LINES)]
    labels = list(dict.fromkeys(label for label, _ in curves))
    if len(labels) == 1:
        yield _figure(study, metric, {task: curves[labels[0], task] for task in shown}, shown, "")
        return
    for task in shown:
        own = {label: curves[label, task] for label in labels if (label, task) in curves}
        yield _figure(study, metric, own, study.labels, f" of {task}")


def _figure(study: Study, metric: Metric, curves: dict[str, Curve], names: list[str], of: str) -> Figure:
    """A line for each name, coloured by its place among all names."""
    steps = sorted({point.step for curve in curves.values() for point in curve.points})
    lines, spoken = [], []
    for name, curve in curves.items():
        at = {point.step: point for point in curve.points}
        values = [at[step].value * metric.scale if step in at else None for step in steps]
        spread = [(at[step].spread or 0.0) * metric.scale if step in at else None for step in steps]
        lines.append(figures.Line(name, values, spread, names.index(name)))
        spoken.append(f"{name} {', '.join(metric.text(point.value) for point in curve.points)}")
    what = f"{metric.name}{of} after so many steps of the task"
    drawn = [line for line in lines if line.points]
    svg = figures.line_chart(
        drawn, [f"{step:,}" for step in steps], x_label="step", y_label=metric.name, alt=f"{what}: {'; '.join(spoken)}"
    )
    numbers = extent({curve.n for curve in curves.values()})
    bars = " Bars: the measurement's own spread." if any(any(line.spread) for line in lines) else ""
    caption = f"{what} ({metric.direction}), of the averaged generator. N = {numbers} samples per value.{bars}"
    return Figure(svg, caption, file=f"training-{study.unique(metric.name + of.replace(' of ', '-'))}.svg")


def _table(study: Study, metric: Metric, curves: Curves) -> Table:
    several = len({label for label, _ in curves}) > 1
    rows = []
    for (label, task), curve in curves.items():
        last, best, gain = curve.points[-1], curve.best, curve.late_gain
        values = [metric.text(best.value), f"{best.step:,}", metric.text(last.value)]
        cells = [f"{label}: {task}" if several else task, f"{last.step:,}", *values]
        late = Cell("–", muted=True) if gain is None else Cell(f"{100 * gain:.0f} %")
        rows.append([*map(Cell, cells), late, Cell("in training" if curve.kept is None else f"{curve.kept:,}")])
    columns = ["Task", "Steps", "Best", "at step", "Last", "Late gain", "Step kept"]
    caption = f"How far each task came: {metric.name} while training, {metric.direction}."
    return Table(caption, columns, rows, notes=[MEANING], tex_label=f"tab:training-{study.unique(metric.name).lower()}")
