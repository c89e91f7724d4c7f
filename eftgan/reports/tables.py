"""The report's tables, independent of the format they are written in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eftgan.evaluation.metrics import Metric
from eftgan.reports.growth import Growth
from eftgan.reports.items import Cell, Table
from eftgan.reports.notes import CARRIED, FEWER, chosen_on_test, most_samples, score_notes
from eftgan.reports.numbers import count, extent, percent
from eftgan.reports.results import Result, Study, Value, shown_of

PAPER_LAYOUT_TASKS = 6  # with more tasks, task x after-task columns are wider than any page
RATIO = Metric("ratio", lower_is_better=True, digits=2)
NOT_MEASURED = Cell("n/m", muted=True, note="not measured")
EXPLAINED = {
    "Forgetting": "Forgetting: how much worse the earlier tasks are at the end than just after they were learned, "
    "on average; 0 is none, + is worse.",
    "Forward transfer": "Forward transfer: how much better tasks from the second on are when just learned than those "
    "of separate networks, each trained alone; + is better.",
}


def score_table(study: Study, metric: Metric) -> Table:
    """Every seen task after every task, in the layout of the paper's table; averages where tasks are many."""
    results = study.results(metric)
    if len(study.tasks) > 1 and not any(_measured_later(result) for result in results):
        table = _once_table(study, results)
    elif len(study.tasks) <= PAPER_LAYOUT_TASKS:
        table = _paper_table(study, results)
    else:
        table = _average_table(study, results)
    label = f"tab:{study.unique(metric.name).lower()}"
    return replace(table, notes=score_notes(study, metric, results), tex_label=label)


def summary_table(study: Study, metric: Metric) -> Table:
    """One row per method: final average, when learned, forgetting, growth."""
    results = study.results(metric)
    metric = results[0].metric
    growth = {item.label: item for item in study.growth()}
    several = len(study.tasks) > 1
    alone = next((result for result in results if several and result.method == "separate"), None)
    columns: dict[str, Callable[[Result], Cell]] = {
        "Method": lambda result: Cell(result.label),
        f"Final average {metric.name}": lambda result: _cell(metric, result.final, best=_is_best(result, results)),
    }
    if several:
        columns["When just learned"] = lambda result: _cell(metric, result.learned)
        columns["Forgetting"] = lambda result: _cell(metric, result.forgetting, sign=True)
    if alone:
        columns["Forward transfer"] = lambda result: _cell(metric, result.transfer_over(alone), sign=True)
    if any(result.before for result in results):
        columns["Before learning"] = lambda result: _cell(metric, result.before)
    if growth:
        columns["Growth per task"] = lambda result: _growth_cell(growth.get(result.label))
    columns["Seeds"] = lambda result: Cell(str(len(result.seeds)))
    rows = [[cell(result) for cell in columns.values()] for result in results]
    notes = [note] if (note := chosen_on_test(results)) else []
    notes += [EXPLAINED[column] for column in columns if column in EXPLAINED]
    notes += [_growth_note("Growth per task", list(growth.values()))] if growth else []
    setting = f" ({metric.setting})" if metric.setting else ""
    caption = f"Results at a glance: {metric.name}{setting}{_unit(metric)}, {metric.direction}."
    return Table(caption, list(columns), rows, notes=notes)


def forgetting_table(study: Study, metric: Metric) -> Table | None:
    """How much worse each earlier task is at the end than when just learned."""
    results = study.results(metric)
    earlier = shown_of(len(study.tasks) - 1)
    if not earlier:
        return None
    metric = results[0].metric
    rows = []
    for result in results:
        cells = [_cell(metric, result.forgetting_of(j), sign=True) for j in earlier]
        rows.append([Cell(result.label), *cells, _cell(metric, result.forgetting, sign=True)])
    notes = ["The score at the end against the score just after the task was learned; 0 is none, + is worse."]
    notes += _selection(len(study.tasks) - 1)
    return Table(
        f"Forgetting in {metric.name}{_unit(metric)}.",
        ["Method", *(study.tasks[j] for j in earlier), "Mean"],
        rows,
        notes=notes,
    )


def learning_table(study: Study, metric: Metric) -> Table | None:
    """How well each method learns a further task, compared with fine-tuning, which gives all its weights to it."""
    results = study.results(metric)
    tuned = next((result for result in results if result.method == "finetune"), None)
    others = [result for result in results if result is not tuned]
    later = [1 + j for j in shown_of(len(study.tasks) - 1)]
    if not (tuned and others and later and metric.lower_is_better):
        return None
    rows = [[Cell(result.label), *(_ratio_cell(result.ratio_to(tuned, j)) for j in later)] for result in others]
    caption = f"{metric.name} when just learned, as a multiple of fine-tuning's."
    notes = ["1: learned as well as by fine-tuning; below 1 is better.", *_selection(len(study.tasks) - 1)]
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
        "Executed: the same for the form that is actually run. Bytes: the task's file over the shared file."
    ]
    if shared := [item.label for item in growth if item.adapters_in_common]:
        notes.append(
            f"With {', '.join(shared)} one set of adapters serves all tasks: a task adds no adapters, and the FLOPs "
            "are those of the network with that set."
        )
    empty = {i for i in range(2, len(columns)) if all(row[i].text == "–" for row in rows)}
    keep = [i for i in range(len(columns)) if i not in empty]
    return Table(
        "Growth with each task.", [columns[i] for i in keep], [[row[i] for i in keep] for row in rows], notes=notes
    )


def _once(growth: Growth) -> list[tuple[str, float, dict[str, Any]]]:
    """One row per task, or a single one where every task adds the same."""
    rows = list(zip(growth.tasks, growth.share, growth.details, strict=True))
    same = len(rows) > 1 and all(row[1:] == rows[0][1:] for row in rows)
    return [("each", *rows[0][1:])] if same else [rows[place] for place in shown_of(len(rows))]


def _measured_later(result: Result) -> bool:
    """Whether anything is known of a task after others were learned."""
    places = shown_of(len(result.tasks))
    return any(result.cell(after, on) for after in places for on in places if on < after)


def _once_table(study: Study, results: list[Result]) -> Table:
    """What is measured of each task once, when it is learned: a column per task."""
    metric, shown = results[0].metric, shown_of(len(study.tasks))
    rows = [
        [Cell(result.label), *(_cell(metric, result.cell(j, j)) for j in shown), _cell(metric, result.learned)]
        for result in results
    ]
    caption = f"{metric.name[:1].upper()}{metric.name[1:]}{_unit(metric)} of each task ({metric.direction})."
    return Table(caption, ["Method", *(study.tasks[j] for j in shown), "Mean"], rows)


def _paper_table(study: Study, results: list[Result]) -> Table:
    tasks = study.tasks
    metric = results[0].metric
    most = most_samples(results)
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
    metric, shown = results[0].metric, shown_of(len(study.tasks))
    rows = []
    for result in results:
        cells = [_cell(metric, result.average_after(after)) for after in shown[:-1]]
        final = _cell(metric, result.final, best=_is_best(result, results))
        rows.append([Cell(result.label), *cells, final])
    caption = f"Average {metric.name}{_unit(metric)} over the tasks seen so far ({metric.direction})."
    return Table(caption, ["After task", *(str(t + 1) for t in shown)], rows)


def _selection(count: int) -> list[str]:
    """A note where a table has columns for some of the tasks only."""
    shown = len(shown_of(count))
    return [f"{shown} of {count:,} tasks are shown, evenly spaced; means are over all."] if shown < count else []


def _cell(metric: Metric, value: Value | None, *, best: bool = False, sign: bool = False, most: int = 0) -> Cell:
    """`sign`: the value is a difference; `most`: the largest N of the table, so that smaller ones are marked."""
    if value is None:
        return NOT_MEASURED
    text = metric.text(value.mean, value.within if value.std is None else value.std, sign=sign)
    note = f"N = {extent(value.n)}, seeds: {value.seeds}"
    marks = CARRIED * (value.carried and not sign) + FEWER * (max(value.n) < most)
    return Cell(text, marks, best, note=note)


def _ratio_cell(ratio: Value | None) -> Cell:
    if ratio is None:
        return NOT_MEASURED
    return Cell(RATIO.text(ratio.mean, ratio.std), note=f"N = {extent(ratio.n)}, seeds: {ratio.seeds}")


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


def _flops(details: dict[str, Any], key: str) -> Cell:
    base, task = details.get("flops_base"), details.get(key)
    if not base or task is None:
        return Cell("–")
    return Cell(f"{count(task)} ({(task / base - 1) * 100:+.2f} %)")


def _bytes(details: dict[str, Any]) -> Cell:
    shared, task = details.get("bytes_shared"), details.get("bytes_task")
    if task is None:
        return Cell("–")
    return Cell(f"{count(task)}B" + (f" ({percent(task / shared)})" if shared else ""))


def _unit(metric: Metric) -> str:
    return f" in{metric.unit}" if metric.unit else ""
