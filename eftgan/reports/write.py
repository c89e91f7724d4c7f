"""Writing the report and the files beside it."""

from pathlib import Path

from eftgan.errors import UserError
from eftgan.files import write_text
from eftgan.reports import summary
from eftgan.reports.figures import standalone
from eftgan.reports.html import curve, page
from eftgan.reports.labels import told_apart
from eftgan.reports.results import Study, studies
from eftgan.reports.runs import load_runs
from eftgan.reports.tables import Table, forgetting_table, growth_table, learning_table, score_table, summary_table
from eftgan.reports.text import markdown_table, scores_csv, tex_table


def write_report(runs: list[Path], out: Path) -> list[Path]:
    """Report on run folders: the page at `out`; beside it report.md, table.tex, scores.csv, and curves as SVG."""
    out = Path(out)
    out = out / "report.html" if out.is_dir() else out
    if out.suffix not in {".html", ".htm"}:
        raise UserError(f"the report is an HTML page: name it like {out.with_suffix('.html')}")
    loaded = told_apart(load_runs(list(runs)))
    found = studies(loaded)
    files = {
        out: page(found),
        out.with_suffix(".md"): markdown(found),
        out.with_name("table.tex"): latex(found),
        out.with_name("scores.csv"): scores_csv([score for run in loaded for score in run.scores]),
        **{out.with_name(name): svg for name, svg in curves(found).items()},
    }
    for path, content in files.items():
        write_text(path, content)
    return list(files)


def markdown(found: list[Study]) -> str:
    """The report's words and tables as Markdown."""
    parts = [f"# {summary.title(found)}\n"]
    for study in found:
        parts.append(" ".join(filter(None, summary.sentences(study))) + "\n")
        if warning := summary.caution(study):
            parts.append(f"> {warning}\n")
        parts += [markdown_table(table) for table in study_tables(study)]
    for run in (run for study in found for run in study.runs):
        command = f": `{run.info['command']}`" if run.info.get("command") else ""
        parts.append(f"- {run.label}, seed {run.seed}, `{run.folder}`{command}")
    return "\n".join(parts) + "\n"


def latex(found: list[Study]) -> str:
    """The score tables for a paper; needs \\usepackage{booktabs}."""
    tables = [(study, metric) for study in found for metric in study.metrics]
    labels = [f"tab:{metric.name.lower()}" + f"-{i}" * (len(found) > 1) for i, (_, metric) in enumerate(tables)]
    body = [tex_table(score_table(*table), label) for table, label in zip(tables, labels, strict=True)]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(body)


def curves(found: list[Study]) -> dict[str, str]:
    """The curves of the main metrics as files of their own, by name."""
    drawn = {
        f"curve-{metric.name}{f'-{i + 1}' * (len(found) > 1)}.svg": curve(study, metric)
        for i, study in enumerate(found)
        for metric in study.metrics
        if metric.main and len(study.tasks) > 1
    }
    return {name: standalone(svg) for name, svg in drawn.items() if svg}


def study_tables(study: Study) -> list[Table]:
    """Every table of a study, in the page's order."""
    tables: list[Table | None] = [summary_table(study, study.main)] if study.main else []
    for metric in study.metrics:
        tables.append(score_table(study, metric))
        if metric.main:
            tables += [forgetting_table(study, metric), learning_table(study, metric)]
    if growth := study.growth():
        tables.append(growth_table(growth))
    return [table for table in tables if table is not None]
