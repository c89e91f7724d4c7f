"""The figures of a study: heat maps of every task, the average over tasks, the network's size."""

from eftgan.evaluation.metrics import Metric
from eftgan.reports import figures
from eftgan.reports.growth import Growth
from eftgan.reports.items import Figure, HeatMaps
from eftgan.reports.numbers import extent
from eftgan.reports.results import Study, shown_of

MOST_POINTS = 50  # on a line


def heat_maps(study: Study, metric: Metric) -> HeatMaps:
    """How each task fares as training goes on, a map for each method."""
    results = study.results(metric)
    low, high = figures.heat_range(results)
    return HeatMaps(
        maps=[(result.label, figures.heat_map(result, low, high)) for result in results],
        legend=figures.heat_legend(low, high, metric),
        caption=f"{metric.name} of each task (rows) as training goes on (columns). Darker is worse: a row that darkens "
        f"to the right is a task being forgotten. {_behind(study, metric)}",
    )


def curve(study: Study, metric: Metric) -> Figure | None:
    """The average over the tasks seen so far, a line for each method; none where nothing can be drawn."""
    results, places = study.results(metric), shown_of(len(study.tasks), MOST_POINTS)
    lines, spoken = [], []
    for result in results:
        values = [result.average_after(i) for i in places]
        means = [None if v is None else v.mean * metric.scale for v in values]
        spread = [None if v is None or v.std is None else v.std * metric.scale for v in values]
        line = figures.Line(result.label, means, spread, study.labels.index(result.label))
        if line.points:
            lines.append(line)
            shown = ("not measured" if v is None else metric.text(v.mean) for v in values)
            spoken.append(f"{line.label} {', '.join(shown)}")
    if not lines:
        return None
    named = len(study.tasks) <= 6 and max(map(len, study.tasks)) <= 9  # longer names would run into each other
    ticks = [f"{i + 1} {study.tasks[i]}" if named else str(i + 1) for i in places]
    what = f"Average {metric.name} over the tasks seen so far, after each task"
    y_label = f"average {metric.name}{metric.unit}"
    alt = f"{what}: {'; '.join(spoken)}"
    svg = figures.line_chart(lines, ticks, x_label="after task", y_label=y_label, alt=alt)
    bars = " Bars: standard deviation over seeds." if any(len(result.seeds) > 1 for result in results) else ""
    caption = f"{what} ({metric.direction}). {_behind(study, metric)}{bars}"
    return Figure(svg, caption, file=f"curve-{study.unique(metric.name)}.svg")


def growth_chart(study: Study, growth: list[Growth]) -> Figure | None:
    """Parameters against tasks; none where the score lines do not give them, or with a single task."""
    places = shown_of(len(study.tasks), MOST_POINTS)
    tasks = [place + 1 for place in places]
    lines, spoken = [], []
    for item in growth:
        if every := item.totals():
            totals = [every[place] for place in places]
            lines.append(figures.Line(item.label, totals, colour=study.labels.index(item.label)))
            spoken.append(f"{item.label} {', '.join(f'{value:.2f}' for value in totals)}")
    if not lines or len(tasks) < 2:
        return None
    separate = figures.Line("separate networks", [float(task) for task in tasks], reference=True)
    svg = figures.line_chart(
        [*lines, separate],
        [str(task) for task in tasks],
        x_label="number of tasks",
        y_label="parameters, × base network",
        alt=f"Parameters as a multiple of the base network, after each task: {'; '.join(spoken)}",
    )
    return Figure(svg, "All parameters in use, against the number of tasks. Dashed: a separate network for each task.")


def _behind(study: Study, metric: Metric) -> str:
    """How many samples and seeds a figure is based on."""
    results = study.results(metric)
    numbers = {score.n for result in results for seed in result.seeds for score in seed.values()}
    seeds = max(len(result.seeds) for result in results)
    return f"N = {extent(numbers)} samples per value, {seeds} seed{'s' * (seeds > 1)} per method."
