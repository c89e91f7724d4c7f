"""Writing the report and the files beside it."""

from pathlib import Path

from eftgan.errors import UserError
from eftgan.files import write_text
from eftgan.reports.figures import standalone
from eftgan.reports.html import page
from eftgan.reports.items import Figure
from eftgan.reports.labels import disambiguate_labels
from eftgan.reports.results import studies
from eftgan.reports.runs import load_runs
from eftgan.reports.sections import report_items
from eftgan.reports.text import latex, markdown, scores_csv


def write_report(runs: list[Path], out: Path) -> list[Path]:
    """Report on run folders: the page at `out`; beside it report.md, table.tex, scores.csv, and curves as SVG."""
    out = Path(out)
    out = out / "report.html" if out.is_dir() else out
    if out.suffix not in {".html", ".htm"}:
        raise UserError(f"the report is an HTML page: name it like {out.with_suffix('.html')}")
    loaded = disambiguate_labels(load_runs(list(runs)))
    items = report_items(studies(loaded))
    curves = {item.file: standalone(item.svg) for item in items if isinstance(item, Figure) and item.file}
    files = {
        out: page(items),
        out.with_suffix(".md"): markdown(items),
        out.with_name("table.tex"): latex(items),
        out.with_name("scores.csv"): scores_csv([score for run in loaded for score in run.scores]),
        **{out.with_name(name): svg for name, svg in curves.items()},
    }
    for path, content in files.items():
        write_text(path, content)
    return list(files)
