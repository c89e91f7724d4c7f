"""The report's tables, independent of the format they are written in."""

from dataclasses import dataclass, field

from eftgan.evaluation.metrics import Metric
from eftgan.reports.numbers import count, extent, percent
from eftgan.reports.results import Growth, Result, Study, Value

PAPER_LAYOUT_TASKS = 6  # with more tasks, task x after-task columns are wider than any page
CARRIED, FEWER = "†", "‡"  # marks behind a value


@dataclass(frozen=True)
class Cell:
    """A printed value and the marks behind it; `best` in its column, `muted` where there is nothing to print, `note` on
    hovering."""

    text: str
    marks: str = ""
    best: bool = False
    muted: bool = False
    note: str = ""


NOT_MEASURED = Cell("n/m", muted=True, note="not measured")


@dataclass(frozen=True)
class Table:
    """A caption, an optional line of column groups (text, width), one line of columns, and rows."""

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    groups: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def score_table(study: Study, metric: Metric) -> Table:
    """Every seen task after every task, in the layout of the paper's table; averages where tasks are many."""
    results = study.results(metric)
    if len(study.tasks) <= PAPER_LAYOUT_TASKS:
        table = _paper_table(study, results)
    else:
        table = _average_table(study, results)
    table.notes.extend(_score_notes(study, metric, results))
    return table


def summary_table(study: Study, metric: Metric) -> Table:
    """One row a method: final average, when learned, forgetting, growth."""
    results = study.results(metric)
    metric = results[0].metric
    growth = {item.label: item for item in study.growth()}
    several = len(study.tasks) > 1
    zero_shot = any(result.before for result in results)
    alone = next((result for result in results if several and result.method == "separate"), None)
    columns = ["Method", f"Final average {metric.name}"]
    columns += ["When just learned", "Forgetting"] if several else []
    columns += ["Forward transfer"] if alone else []
    columns += ["Before learning"] if zero_shot else []
    columns += ["Growth a task"] if growth else []
    columns += ["Seeds"]
    rows = []
    for result in results:
        row = [Cell(result.label), _cell(metric, result.final, best=_is_best(result, results))]
        row += [_cell(metric, result.learned), _cell(metric, result.forgetting, sign=True)] if several else []
        row += [_cell(metric, result.transfer_over(alone), sign=True)] if alone else []
        row += [_cell(metric, result.before)] if zero_shot else []
        row += [_growth_cell(growth.get(result.label))] if growth else []
        rows.append([*row, Cell(str(len(result.seeds)))])
    notes = []
    if several:
        notes.append(
            "Forgetting: how much worse the earlier tasks are at the end than just after they were learned, "
            "on average; 0 is none, + is worse."
        )
    if alone:
        notes.append(
            "Forward transfer: how much better tasks from the second on are when just learned than those of separate "
            "networks, each trained alone; + is better."
        )
    if growth:
        notes.append(_growth_note("Growth a task", list(growth.values())))
    caption = f"Results at a glance: {metric.name}{_unit(metric)}, {metric.direction}."
    return Table(caption, columns, rows, notes=notes)


def forgetting_table(study: Study, metric: Metric) -> Table | None:
    """How much worse each earlier task is at the end than when just learned."""
    results = study.results(metric)
    earlier = study.tasks[:-1]
    if not earlier:
        return None
    metric = results[0].metric
    rows = []
    for result in results:
        cells = [_cell(metric, result.forgetting_of(j), sign=True) for j in range(len(earlier))]
        rows.append([Cell(result.label), *cells, _cell(metric, result.forgetting, sign=True)])
    notes = ["The score at the end against the score just after the task was learned; 0 is none, + is worse."]
    return Table(f"Forgetting in {metric.name}{_unit(metric)}.", ["Method", *earlier, "Mean"], rows, notes=notes)


def learning_table(study: Study, metric: Metric) -> Table | None:
    """How well each method learns a further task, measured by fine-tuning, which gives all its weights to it."""
    results = study.results(metric)
    tuned = next((result for result in results if result.method == "finetune"), None)
    others = [result for result in results if result is not tuned]
    later = range(1, len(study.tasks))
    if not (tuned and others and later and metric.lower_is_better):
        return None
    rows = [[Cell(result.label), *(_ratio_cell(result.ratio_to(tuned, j)) for j in later)] for result in others]
    caption = f"{metric.name} when just learned, as a multiple of fine-tuning's."
    notes = ["1 learns the task as well as fine-tuning does; below 1 is better."]
    return Table(caption, ["Method", *(study.tasks[j] for j in later)], rows, notes=notes)


def growth_table(growth: list[Growth]) -> Table:
    """What each task adds in parameters, computation and bytes."""
    columns = ["Method", "Task", "Base", "Adapters", "Growth", "Norm", "Head", "FLOPs", "Executed", "Bytes"]
    rows = []
    for item in growth:
        for task, share, details in _once(item):
            parts = [details.get(f"{part}_parameters") for part in ("base", "adapter", "norm", "head")]
            base, adapter, norm, head = (Cell("–" if part is None else f"{part:,}") for part in parts)
            costs = [_flops(details, "flops_task"), _flops(details, "flops_executed"), _bytes(details)]
            rows.append([Cell(item.label), Cell(task), base, adapter, Cell(percent(share)), norm, head, *costs])
    notes = [
        "Base: parameters of the shared network. Adapters, Norm, Head: parameters that one task adds. "
        f"{_growth_note('Growth', growth)} "
        "FLOPs: one image through the network with the task's adapters, over the base network alone; "
        "Executed: the same for the form that is really run. Bytes: the task's file over the shared file."
    ]
    empty = {i for i in range(2, len(columns)) if all(row[i].text == "–" for row in rows)}
    keep = [i for i in range(len(columns)) if i not in empty]
    return Table(
        "Growth with each task.", [columns[i] for i in keep], [[row[i] for i in keep] for row in rows], notes=notes
    )


def _once(growth: Growth) -> list[tuple[str, float, dict]]:
    """A row a task, or a single one where every task adds the same."""
    rows = list(zip(growth.tasks, growth.share, growth.details, strict=True))
    same = len(rows) > 1 and all(row[1:] == rows[0][1:] for row in rows)
    return [("each", *rows[0][1:])] if same else rows


def _paper_table(study: Study, results: list[Result]) -> Table:
    tasks = study.tasks
    metric = results[0].metric
    most = _most_samples(study, results)
    rows = []
    for result in results:
        cells = [
            _cell(metric, result.cell(after, on), most=most)
            if after >= on
            else Cell("–", muted=True, note="not yet seen")
            for on in range(len(tasks))
            for after in range(len(tasks))
        ]
        average = _cell(metric, result.final, best=_is_best(result, results))
        rows.append([Cell(result.label), *cells, average])
    numbers = [str(t + 1) for _ in tasks for t in range(len(tasks))]
    groups = [("", 1), *((task, len(tasks)) for task in tasks), ("Final", 1)]
    caption = f"{metric.name}{_unit(metric)} of every seen task after each task t ({metric.direction})."
    return Table(caption, ["Task t", *numbers, "average"], rows, groups)


def _average_table(study: Study, results: list[Result]) -> Table:
    metric = results[0].metric
    rows = []
    for result in results:
        cells = [_cell(metric, result.average_after(after)) for after in range(len(study.tasks) - 1)]
        final = _cell(metric, result.final, best=_is_best(result, results))
        rows.append([Cell(result.label), *cells, final])
    caption = f"Average {metric.name}{_unit(metric)} over the tasks seen so far ({metric.direction})."
    return Table(caption, ["After task", *(str(t + 1) for t in range(len(study.tasks)))], rows)


def _score_notes(study: Study, metric: Metric, results: list[Result]) -> list[str]:
    scores = [score for result in results for seed in result.seeds for score in seed.values()]
    about = [f"{metric.explanation}."] if metric.explanation and metric != study.main else []  # the summary has main's
    notes = [*about, f"N = {extent({score.n for score in scores})} samples behind each value."]
    seeds = max(len(result.seeds) for result in results)
    if seeds > 1:
        notes.append("Mean ± sample standard deviation over seeds.")
    elif any(score.details.get("std") is not None for score in scores):
        notes.append("± standard deviation over random subsets of the images.")
    if any(score.details.get("carried") for score in scores):
        notes.append(f"{CARRIED} carried over: the task is proven unchanged by its digest, so not measured again.")
    if fewer := {score.n for score in scores if score.n < _most_samples(study, results)}:
        notes.append(f"{FEWER} fewer samples: N = {extent(fewer)}.")
    extractors = {str(score.details["extractor"]) for score in scores if score.details.get("extractor")}
    if extractors:
        notes.append(f"Features: {', '.join(sorted(extractors))}.")
    floor = study.floor(metric)
    if floor:
        shown = (f"{task} {results[0].metric.text(s.value)} (N = {s.n:,})" for task, s in floor.items())
        notes.append(f"Real images against real images, the floor: {', '.join(shown)}.")
    if metric.depends_on_n and len({score.n for score in scores}) > 1:
        notes.append(f"Caution: {metric.name} falls as N grows, so values of different N do not compare.")
    if mixed := _mixed_references(study, metric):
        notes.append(f"Caution: the methods were measured against different real images for {', '.join(mixed)}.")
    return notes


def _most_samples(study: Study, results: list[Result]) -> int:
    """The largest N of a table of generated images; 0 for test sets, whose sizes are given."""
    if study.kind != "gan":
        return 0
    return max(score.n for result in results for seed in result.seeds for score in seed.values())


def _mixed_references(study: Study, metric: Metric) -> list[str]:
    references: dict[str, set[str]] = {}
    for run in study.runs:
        for score in run.scores:
            of_model = score.metric == metric.name and score.trained_through in study.tasks
            if of_model and score.details.get("reference"):
                references.setdefault(score.tested_on, set()).add(str(score.details["reference"]))
    return [task for task, found in references.items() if len(found) > 1]


def _cell(metric: Metric, value: Value | None, *, best: bool = False, sign: bool = False, most: int = 0) -> Cell:
    """`sign`: the value is a difference; `most`: the largest N around, so that a smaller one is marked."""
    if value is None:
        return NOT_MEASURED
    text = metric.text(value.mean, value.within if value.std is None else value.std, sign=sign)
    note = f"N = {extent(value.n)}, seeds: {value.seeds}"
    marks = CARRIED * (value.carried and not sign) + FEWER * (max(value.n) < most)
    return Cell(text, marks, best, note=note)


def _ratio_cell(ratio: Value | None) -> Cell:
    if ratio is None:
        return NOT_MEASURED
    spread = "" if ratio.std is None else f" ± {ratio.std:.2f}"
    return Cell(f"{ratio.mean:.2f}{spread}", note=f"N = {extent(ratio.n)}, seeds: {ratio.seeds}")


def _is_best(result: Result, results: list[Result]) -> bool:
    finals = [other.final.mean for other in results if other.final]
    if len(finals) < 2 or result.final is None:
        return False
    return result.final.mean == (min(finals) if result.metric.lower_is_better else max(finals))


def _growth_cell(growth: Growth | None) -> Cell:
    if growth is None:
        return NOT_MEASURED
    low, high = min(growth.share), max(growth.share)
    return Cell(percent(high) if high - low < 5e-5 else f"{percent(low)} to {percent(high)}")


def _growth_note(column: str, growth: list[Growth]) -> str:
    note = f"{column}: adapter parameters of one task over the parameters of the base network"
    whole = any(item.whole_networks for item in growth)
    return note + "; all of its parameters where a task has a whole network of its own." if whole else f"{note}."


def _flops(details: dict, key: str) -> Cell:
    base, task = details.get("flops_base"), details.get(key)
    if not base or task is None:
        return Cell("–")
    return Cell(f"{count(task)} ({(task / base - 1) * 100:+.2f} %)")


def _bytes(details: dict) -> Cell:
    shared, task = details.get("bytes_shared"), details.get("bytes_task")
    if task is None:
        return Cell("–")
    return Cell(f"{count(task)}B" + (f" ({percent(task / shared)})" if shared else ""))


def _unit(metric: Metric) -> str:
    return f" in{metric.unit}" if metric.unit else ""
