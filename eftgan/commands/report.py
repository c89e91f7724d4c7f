"""`eftgan report`: one page from the score lines of one or more runs."""

import argparse
from pathlib import Path

HELP = "Make one page from the score lines of one or more runs."
EXAMPLES = """\
eftgan report runs/shapes runs/other --out report.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of runs")
    parser.add_argument("--out", type=Path, help="the HTML page (default: report.html in the first run)")


def run(args: argparse.Namespace) -> None:
    """Write report.html with report.md, table.tex, scores.csv and the curves beside it."""
    from eftgan.reports.write import write_report

    for path in write_report(args.runs, args.out or args.runs[0] / "report.html"):
        print(path)
