"""The report as Markdown, LaTeX (booktabs) and CSV."""

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from typing import assert_never

from eftgan.reports.items import (
    Caution,
    Cell,
    Figure,
    Heading,
    HeatMaps,
    Item,
    Lead,
    Paragraph,
    Provenance,
    Samples,
    Table,
    Title,
)
from eftgan.reports.runs import Run, command_of
from eftgan.scores import Score

TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "–": "--",
}
MD_SPECIAL = re.compile(r"[\\`*~\[\]|]|(?<!\w)_|_(?!\w)")  # an underscore within a word stands for itself
CSV_COLUMNS = ["run", "method", "seed", "trained_through", "tested_on", "metric", "value", "n", "details"]


def markdown(items: list[Item]) -> str:
    """The report's words and tables as Markdown."""
    return "\n".join(part for item in items for part in _markdown_item(item)) + "\n"


def latex(items: list[Item]) -> str:
    """The score tables for a paper; needs \\usepackage{booktabs}."""
    body = [tex_table(item) for item in items if isinstance(item, Table) and item.tex_label]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(body)


def _markdown_item(item: Item) -> Iterator[str]:
    match item:
        case Title(text):
            yield f"# {md(text)}\n"
        case Paragraph(text):
            yield f"{md(text)}\n"
        case Caution(text):
            yield f"> {md(text)}\n"
        case Table():
            yield markdown_table(item)
        case Provenance(runs):
            yield from map(_md_run, runs)
        case Lead() | Heading() | Figure() | HeatMaps() | Samples():
            return  # of the page alone: captions say what a table shows
        case _:
            assert_never(item)


def _md_run(run: Run) -> str:
    command = command_of(run)
    return f"- {md(run.label)}, seed {run.seed}, {_md_code(str(run.folder.path))}" + (
        f": {_md_code(command)}" if command else ""
    )


def markdown_table(table: Table) -> str:
    """A GitHub-style table; a column's group is written into its heading."""
    headings = [md(f"{group} {column}".strip()) for group, column in _with_groups(table)]
    lines = [f"**{md(table.caption)}**", "", _md_row(headings), _md_row(["---"] + ["--:"] * (len(headings) - 1))]
    lines += [_md_row([_md_cell(cell) for cell in row]) for row in table.rows]
    lines += ["", *(f"{md(note)}  " for note in table.notes)]
    return "\n".join(lines) + "\n"


def tex_table(table: Table) -> str:
    """A table* for booktabs, with rules between the column groups."""
    if table.groups:
        columns = " | ".join("l" if i == 0 else "c" * width for i, (_, width) in enumerate(table.groups))
    else:
        columns = "l" + "c" * (len(table.columns) - 1)
    lines = [
        r"\begin{table*}",
        r"  \centering",
        r"  \small",
        rf"  \caption{{{tex(' '.join([table.caption, *table.notes]))}}}",
        rf"  \label{{{table.tex_label}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
    ]
    if table.groups:
        last = len(table.groups) - 1
        spans = [
            tex(name) if width == 1 else rf"\multicolumn{{{width}}}{{{'c' if i == last else 'c|'}}}{{{tex(name)}}}"
            for i, (name, width) in enumerate(table.groups)
        ]
        lines.append(f"    {' & '.join(spans)} \\\\")
    lines += [f"    {' & '.join(map(tex, table.columns))} \\\\", r"    \midrule"]
    lines += [f"    {' & '.join(_tex_cell(cell) for cell in row)} \\\\" for row in table.rows]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table*}"]
    return "\n".join(lines) + "\n"


def scores_csv(scores: list[Score]) -> str:
    """Every score line as a row; details as JSON."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for score in scores:
        row = [getattr(score, column) for column in CSV_COLUMNS[:-1]]
        writer.writerow([*row, json.dumps(score.details, sort_keys=True)])
    return buffer.getvalue()


def tex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(TEX.get(character, character) for character in text)


def md(text: str) -> str:
    """Text as Markdown that shows it: nothing in it becomes markup or raw HTML."""
    return MD_SPECIAL.sub(lambda found: f"&#{ord(found[0])};", html.escape(_one_line(text), quote=False))


def _md_code(text: str) -> str:
    """A code span, fenced by more backticks than the text has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{_one_line(text)}{space}{fence}"


def _one_line(text: str) -> str:
    return re.sub(r"[\r\n]+", " ", text)


def _with_groups(table: Table) -> list[tuple[str, str]]:
    groups = [name for name, width in table.groups for _ in range(width)] or [""] * len(table.columns)
    return list(zip(groups, table.columns, strict=True))


def _md_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _md_cell(cell: Cell) -> str:
    return (f"**{md(cell.text)}**" if cell.best else md(cell.text)) + cell.marks


def _tex_cell(cell: Cell) -> str:
    text = tex(cell.text)
    return (rf"\textbf{{{text}}}" if cell.best else text) + tex(cell.marks)
