"""The report's sections in one ordered list, independent of the format they are written in."""

from collections.abc import Callable, Iterator

from eftgan.evaluation.metrics import Metric
from eftgan.reports import charts, summary, tables
from eftgan.reports.items import Caution, Heading, Item, Lead, Paragraph, Provenance, Samples, Table, Title
from eftgan.reports.learning import while_training
from eftgan.reports.results import Study
from eftgan.reports.runs import Run
from eftgan.reports.samples import Grids, find_grids, is_long

SAMPLES = (
    "Each row is a task, each column the same generator later in training. Outlined: just learned. "
    "What changes to the right of the outline is what was forgotten."
)
MANY_SAMPLES = "Each task: real pictures, samples when it was just learned, and at the end if they differ."


def report_items(studies: list[Study]) -> list[Item]:
    """The whole report: its title, the sections of every study, and how the figures were made."""
    items: list[Item] = [Title(summary.title(studies)), Lead(summary.lead(studies))]
    for study in studies:
        for section in SECTIONS:
            items += section(study)
    runs = [run for study in studies for run in study.runs]
    return [*items, Heading("How these figures were made", "provenance"), Provenance(runs)]


def outcome(study: Study) -> Iterator[Item]:
    """What was trained and what came out, in words."""
    if study.number:
        yield Heading(summary.sequence(study))
    yield from (Paragraph(text) for text in summary.paragraphs(study))
    if warning := summary.caution(study):
        yield Caution(warning)


def at_a_glance(study: Study) -> Iterator[Item]:
    """One row per method."""
    shown = summary.settings_of(study) or study.metrics[:1]
    yield from (tables.summary_table(study, metric) for metric in shown)


def main_metric(study: Study) -> Iterator[Item]:
    """The metric that the summary speaks of."""
    if study.main is not None:
        yield from _task_by_task(study, study.main)


def samples(study: Study) -> Iterator[Item]:
    """The grids of one run per method: one seed is enough to see."""
    shown: dict[str, tuple[Run, Grids]] = {}
    for run in study.runs:
        grids = find_grids(run) if run.label not in shown else None
        if grids:
            shown[run.label] = (run, grids)
    if shown and study.metrics:
        yield Heading("Samples", study.unique("samples"))
        many = any(is_long(run) for run, _ in shown.values())
        yield Samples(MANY_SAMPLES if many else SAMPLES, list(shown.values()))


def further_metrics(study: Study) -> Iterator[Item]:
    """All metrics but the main one."""
    for metric in study.metrics[1:]:
        yield from _task_by_task(study, metric)


def growth(study: Study) -> Iterator[Item]:
    """What each task adds to the network."""
    if found := study.growth():
        yield Heading("Growth of the network", study.unique("growth"))
        if chart := charts.growth_chart(study, found):
            yield chart
        yield tables.growth_table(found)


SECTIONS: list[Callable[[Study], Iterator[Item]]] = [
    outcome,
    at_a_glance,
    main_metric,
    samples,
    further_metrics,
    while_training,
    growth,
]


def _task_by_task(study: Study, metric: Metric) -> Iterator[Item]:
    """The scores of every task after every task; figures and the tables derived from them for `main` metrics only."""
    yield Heading(f"{metric.name[:1].upper()}{metric.name[1:]}, task by task", study.unique(metric.name))
    yield tables.score_table(study, metric)
    if not metric.main or len(study.tasks) < 2:
        return
    metric = study.results(metric)[0].metric  # as these runs' values are scaled
    yield charts.heat_maps(study, metric)
    if chart := charts.curve(study, metric):
        yield chart
    made: list[Table | None] = [tables.forgetting_table(study, metric), tables.learning_table(study, metric)]
    yield from (table for table in made if table is not None)
