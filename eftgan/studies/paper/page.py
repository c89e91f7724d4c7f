"""The page: our figures beside the paper's, with the budget, seeds, growth and state of every row."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from eftgan.evaluation.metrics import METRICS
from eftgan.files import exclusive, write_text
from eftgan.names import counted
from eftgan.reports import charts
from eftgan.reports.html import page
from eftgan.reports.items import Caution, Cell, Heading, Item, Lead, Paragraph, Provenance, Table, Title
from eftgan.reports.items import Figure as Drawing
from eftgan.reports.numbers import percent
from eftgan.reports.results import Study
from eftgan.reports.runs import Run
from eftgan.reports.text import markdown
from eftgan.studies.paper.plan import Plan
from eftgan.studies.paper.readings import Ours, read_runs
from eftgan.studies.paper.tables import Figure, Row, Series

NONE = Cell("–", muted=True)
TITLE = "The paper's tables"
LEAD = (
    '"Efficient Feature Transformations for Discriminative and Generative Continual Learning" (Verma et al., CVPR '
    "2021): what the paper prints, and what came out here. Spreads are sample standard deviations over seeds."
)


def write_page(plans: Sequence[Plan], out: Path) -> list[Path]:
    """Write paper.html and paper.md into a folder; several processes may do so at once."""
    items = page_items(plans)
    files = {out / "paper.html": page(items), out / "paper.md": markdown(items)}
    with exclusive(out / ".paper.lock"):
        for path, content in files.items():
            write_text(path, content)
    return list(files)


def page_items(plans: Sequence[Plan]) -> list[Item]:
    """The whole page."""
    runs: dict[Path, Run] = {}
    items: list[Item] = [Title(TITLE), Lead(LEAD)]
    for plan in plans:
        ours = {row.recipe: read_runs(plan.finished(row.recipe), row.name) for row in plan.table.rows}
        items += _section(plan, ours)
        runs |= {run.folder.path: run for each in ours.values() if each for run in each.runs}
    return [*items, Heading("How these figures were made", "provenance"), Provenance(list(runs.values()))]


def _section(plan: Plan, ours: dict[str, Ours | None]) -> Iterator[Item]:
    yield Heading(plan.table.heading, f"{plan.table.name}-{plan.settings.folder}")
    yield Paragraph(_about(plan))
    if warning := _caution(plan):
        yield Caution(warning)
    yield _figures(plan, ours)
    if plan.table.series and (table := _series(plan, plan.table.series, ours)).rows:
        yield table
    yield from _drawings(plan, [run for own in ours.values() if own for run in own.runs])


def _drawings(plan: Plan, runs: list[Run]) -> Iterator[Drawing]:
    """Ours as curves over the tasks: what the paper's figures draw."""
    study = Study(plan.kind.name, runs[0].tasks, runs) if runs else None
    if study is None or len(study.tasks) < 2:
        return
    drawn: list[Drawing | None] = []
    if plan.table.series and study.results(metric := METRICS[plan.table.series.metric]):
        drawn.append(charts.curve(study, metric))
    if any(figure.reads == "cost" for figure in plan.table.figures):
        drawn.append(charts.growth_chart(study, study.growth()))
    yield from (chart for chart in drawn if chart)


def _about(plan: Plan) -> str:
    """With what settings the section's runs were trained."""
    table, settings, count, whole = plan.table, plan.settings, plan.trained_tasks, len(plan.tasks)
    sentences = [f"Trained for {plan.length}; in the paper {plan.whole_length}."]
    sentences += [f"Small form: {plan.paper.form(table).about}."] if settings.small else []
    sentences += [f"{counted(count, 'task')} of {whole}."] if count < whole else []
    sentences += [f"At most {settings.limit:,} images."] if settings.limit else []
    sentences += [f"{each.name}: {each.about}." for each in plan.paper.protocol(settings.protocol)]
    sentences += [f"Changed: {' '.join(settings.words)}."] if settings.words else []
    sentences += [f"The paper averages over {table.orders} orders of the tasks; a seed is one."] if table.orders else []
    return " ".join(sentences)


def _caution(plan: Plan) -> str | None:
    """Why ours is no repetition of the paper's, or better than it should be."""
    settings, count, whole = plan.settings, plan.trained_tasks, len(plan.tasks)
    reasons = [f"{settings.budget:g} of the epochs"] * (settings.budget != 1)
    reasons += ["a small form of the experiment"] * settings.small
    reasons += [f"{count} of {whole} tasks"] * (count < whole)
    reasons += [f"{settings.limit:,} images"] if settings.limit else []
    reasons += ["other settings"] * bool(settings.words)
    sentences = []
    if reasons:
        what = "figures compare the rows with each other, and do not repeat the paper's experiment."
        sentences.append(f"{', '.join(reasons)}: {what}")
    if (plan.data("eft").get("training") or {}).get("selection") == "test":
        sentences.append(
            "best-on-test: the epoch that is best on the test images is kept, so the figures are too good."
        )
    return " ".join(sentences) or None


def _caption(plan: Plan, what: str) -> str:
    return f"{plan.table.heading} ({plan.table.label}). {what} [{plan.settings.folder}]"


def _figures(plan: Plan, ours: dict[str, Ours | None]) -> Table:
    """One line per row of the paper."""
    table = plan.table
    groups = [("", 1), *((figure.title, 2) for figure in table.figures), ("Growth per task", 2), ("", 4)]
    columns = ["Row", *["ours", "paper"] * (len(table.figures) + 1), "Budget", "Seeds", "Seconds", "State"]
    rows = []
    for row in table.rows:
        own = ours[row.recipe]
        pairs = [cell for figure in table.figures for cell in _pair(plan, row, figure, own)]
        seeds = Cell(", ".join(str(run.seed) for run in own.runs)) if own else NONE
        seconds = Cell(f"{own.seconds:,.0f}") if own and own.seconds is not None else NONE
        budget = Cell(f"{plan.settings.budget:g}") if own else NONE
        rows.append([Cell(row.name), *pairs, *_growth(row, own), budget, seeds, seconds, Cell(plan.state(row.recipe))])
    remedies = [found.remedy for found in plan.obstacles.values() if found]
    notes = [*table.notes, *(f"{each}." for each in dict.fromkeys(remedies))]
    if any(own and len(own.runs) == 1 for own in ours.values()):
        notes.append("With one seed there is no spread.")
    return Table(_caption(plan, "Ours beside the paper's."), columns, rows, groups, notes)


def _pair(plan: Plan, row: Row, figure: Figure, own: Ours | None) -> list[Cell]:
    text = own.text(figure) if own else None
    printed = row.printed(figure, plan.table.series)
    if printed:
        theirs = Cell(figure.text(*printed))
    else:
        theirs = NONE if row.only_here else Cell("drawn", muted=True, note="the paper prints no number")
    return [Cell(text) if text else NONE, theirs]


def _growth(row: Row, own: Ours | None) -> list[Cell]:
    growth = own.growth if own else None
    theirs = Cell(f"{row.growth:g} %") if row.growth is not None else NONE
    return [Cell(percent(max(growth.share))) if growth else NONE, theirs]


def _series(plan: Plan, series: Series, ours: dict[str, Ours | None]) -> Table:
    """Two lines per row: ours, and the paper's where it is printed."""
    count, digits = len(plan.tasks), plan.table.figures[-1].digits
    cells, rows = series.cells(count), []
    for row in plan.table.rows:
        own = ours[row.recipe]
        if own:
            found = own.series(series, digits)
            if series.kind == "each":  # after the last of the tasks that were trained
                found = {(count - 1, on): text for (_, on), text in found.items()}
            rows.append([Cell(f"{row.name}, ours"), *(Cell(found[c]) if c in found else NONE for c in cells)])
        if len(row.curve) == len(cells):
            rows.append([Cell(f"{row.name}, paper"), *(Cell(f"{value:.{digits}f}") for value in row.curve)])
    by_task = [plan.tasks[on] for _, on in cells]
    columns = by_task if series.kind == "each" else [str(after + 1) for after, _ in cells]
    groups = [(name, by_task.count(name)) for name in plan.tasks] if series.kind == "matrix" else []
    first = "Row" if series.kind == "each" else "After task"
    return Table(_caption(plan, f"{series.title}."), [first, *columns], rows, [("", 1), *groups] if groups else [])
