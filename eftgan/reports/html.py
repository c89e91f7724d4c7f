"""The report as one self-contained HTML page: no network, no scripts."""

import json
from html import escape

from eftgan.evaluation.metrics import Metric
from eftgan.reports import figures, summary
from eftgan.reports.markup import css_class, html_table
from eftgan.reports.results import Growth, Study
from eftgan.reports.runs import Run, weight_digests
from eftgan.reports.samples import Grids, data_uri, find_grids
from eftgan.reports.style import CSS
from eftgan.reports.tables import forgetting_table, growth_table, learning_table, score_table, summary_table


def page(studies: list[Study]) -> str:
    """The whole page."""
    heading = summary.title(studies)
    body = [f"<h1>{escape(heading)}</h1>", _lead(studies)]
    for i, study in enumerate(studies):
        body += _study(study, f"s{i + 1}-" if len(studies) > 1 else "")
    body.append(_provenance([run for study in studies for run in study.runs]))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)} · eftgan report</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _lead(studies: list[Study]) -> str:
    lines = sum(len(run.scores) for study in studies for run in study.runs)
    runs = sum(len(study.runs) for study in studies)
    made_from = f"{lines} score lines of {runs} run{'s' * (runs > 1)}"
    return f'<p class="lead">Continual learning report, made from {made_from}.</p>'


def _study(study: Study, prefix: str) -> list[str]:
    parts = []
    if prefix:
        parts.append(f"<h2>{escape(' → '.join(study.tasks))}</h2>")
    parts.append(f'<p class="summary">{escape(" ".join(filter(None, summary.sentences(study))))}</p>')
    if warning := summary.caution(study):
        parts.append(f'<p class="caution">{escape(warning)}</p>')
    if study.main is not None:
        parts.append(html_table(summary_table(study, study.main)))
    for i, metric in enumerate(study.metrics):
        parts += _metric(study, metric, prefix)
        if i == 0:
            parts.append(_samples(study, prefix))
    if growth := study.growth():
        parts.append(_growth(study, growth, prefix))
    return parts


def _metric(study: Study, metric: Metric, prefix: str) -> list[str]:
    results = study.results(metric)
    name = escape(metric.name)
    parts = [
        f'<h2 id="{prefix}{name}">{name[:1].upper()}{name[1:]}, task by task</h2>',
        html_table(score_table(study, metric)),
    ]
    if not metric.main or len(study.tasks) < 2:
        return parts
    metric = results[0].metric
    low, high = figures.heat_range(results)
    maps = "".join(
        f"<div><h3>{escape(result.label)}</h3>{figures.heat_map(result, low, high)}</div>" for result in results
    )
    parts.append(
        f'<figure><div class="maps">{maps}</div>{figures.heat_legend(low, high, metric)}<figcaption>'
        f"{escape(metric.name)} of each task (rows) as training goes on (columns). Darker is worse: a row that "
        f"darkens to the right is a task being forgotten. {_behind(study, metric)}</figcaption></figure>"
    )
    parts.append(_curve(study, metric))
    parts += [html_table(table) for make in (forgetting_table, learning_table) if (table := make(study, metric))]
    return parts


def curve(study: Study, metric: Metric) -> str:
    """The average over the tasks seen so far, a line for each method; empty where nothing can be drawn."""
    lines = []
    for result in study.results(metric):
        values = [result.average_after(i) for i in range(len(study.tasks))]
        means = [None if v is None else v.mean * metric.scale for v in values]
        spread = [None if v is None or v.std is None else v.std * metric.scale for v in values]
        line = figures.Line(result.label, means, spread, study.labels.index(result.label))
        lines += [line] if line.points else []
    if not lines:
        return ""
    named = len(study.tasks) <= 6 and max(map(len, study.tasks)) <= 9  # longer names would run into each other
    ticks = [f"{i + 1} {task}" if named else str(i + 1) for i, task in enumerate(study.tasks)]
    alt = f"Average {metric.name} over the tasks seen so far, after each task: " + "; ".join(
        f"{line.label} {', '.join('not measured' if v is None else f'{v:.1f}' for v in line.values)}" for line in lines
    )
    y_label = f"average {metric.name}{metric.unit}"
    return figures.line_chart(lines, ticks, x_label="after task", y_label=y_label, alt=alt)


def _curve(study: Study, metric: Metric) -> str:
    chart = curve(study, metric)
    if not chart:
        return ""
    several = any(len(result.seeds) > 1 for result in study.results(metric))
    bars = " Bars: standard deviation over seeds." if several else ""
    return (
        f"<figure>{chart}<figcaption>Average {escape(metric.name)} over the tasks seen so far, after each task "
        f"({metric.direction}). {_behind(study, metric)}{bars}</figcaption></figure>"
    )


def _behind(study: Study, metric: Metric) -> str:
    """How many samples and seeds stand behind a figure."""
    results = study.results(metric)
    numbers = {score.n for result in results for seed in result.seeds for score in seed.values()}
    low, high = min(numbers), max(numbers)
    n = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    seeds = max(len(result.seeds) for result in results)
    return f"N = {n} samples a value, {seeds} seed{'s' * (seeds > 1)} a method."


def _growth(study: Study, growth: list[Growth], prefix: str) -> str:
    parts = [f'<h2 id="{prefix}growth">Growth of the network</h2>']
    lines = [
        figures.Line(item.label, totals, colour=study.labels.index(item.label))
        for item in growth
        if (totals := item.totals())
    ]
    tasks = study.tasks
    if lines and len(tasks) > 1:
        separate = [float(i + 1) for i in range(len(tasks))]
        alt = "Parameters as a multiple of the base network, after each task: " + "; ".join(
            f"{line.label} {', '.join(f'{value:.2f}' for value in line.values)}" for line in lines
        )
        chart = figures.line_chart(
            [*lines, figures.Line("separate networks", separate, reference=True)],
            [str(i + 1) for i in range(len(tasks))],
            x_label="number of tasks",
            y_label="parameters, × base network",
            alt=alt,
        )
        parts.append(
            f"<figure>{chart}<figcaption>All parameters in use, against the "
            "number of tasks. Dashed: a separate network for each task.</figcaption></figure>"
        )
    return "".join([*parts, html_table(growth_table(growth), "growth")])


def _samples(study: Study, prefix: str) -> str:
    shown: dict[str, tuple[Run, Grids]] = {}
    for run in study.runs:  # one seed a method is enough to see
        grids = find_grids(run) if run.label not in shown else None
        if grids:
            shown[run.label] = (run, grids)
    if not shown:
        return ""
    parts = [
        f'<h2 id="{prefix}samples">Samples</h2><p>Each row is a task, each column the same generator later in '
        "training. Outlined: just learned. What changes to the right of the outline is what was forgotten.</p>"
    ]
    parts += [_sample_table(run, grids) for run, grids in shown.values()]
    return "".join(parts)


def _sample_table(run: Run, grids: Grids) -> str:
    real = bool(grids.real)
    head = '<th scope="col">task</th>' + ('<th scope="col">real</th>' if real else "")
    head += "".join(f'<th scope="col">after {escape(task)}</th>' for task in run.tasks)
    rows = []  # joined at the end: with many tasks this is most of the page
    for on, task in enumerate(run.tasks):
        rows.append(f'<tr><th scope="row">{escape(task)}</th>')
        if real:
            rows.append(f'<td class="real">{_image(grids.real.get(on), f"Real pictures: {task}")}</td>')
        for after, later in enumerate(run.tasks):
            alt = f"Samples of {task} by {run.label} after training through {later}"
            kind = "just" if after == on else ""
            rows.append(f"<td>{_image(grids.after.get((after, on)), alt, kind)}</td>")
        rows.append("</tr>")
    caption = f"{run.label}, seed {run.seed}"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Samples of {escape(caption, quote=True)}">'
        f'<table class="samples"><caption><span>{escape(caption)}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _image(path, alt: str, kind: str = "") -> str:
    if path is None:
        return ""
    return f'<img src="{data_uri(path)}" alt="{escape(alt, quote=True)}"{css_class(**{kind: bool(kind)})}>'


def _provenance(runs: list[Run]) -> str:
    return '<h2 id="provenance">How these figures were made</h2>' + "".join(map(_made, runs))


def _made(run: Run) -> str:
    """Command, versions and digests of one run; the long parts folded away."""
    info = run.info
    pairs = {"method": f"{run.label}, seed {run.seed}", "folder": str(run.folder)}
    if versions := info.get("versions"):
        pairs["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(value))}</dd>" for key, value in pairs.items())
    command = f"<pre>{escape(_command(info['command']))}</pre>" if info.get("command") else ""
    digests = "\n".join(f"{digest}  {path}" for path, digest in weight_digests(run.folder).items())
    folded = _folded("Digests of the weights (sha256)", digests) + _folded("config.yaml", run.config)
    return f"<h3>{escape(run.name)}</h3>{command}<dl>{listed}</dl>{folded}"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>" if text else ""


def _command(command) -> str:
    return command if isinstance(command, str) else json.dumps(command)
