"""Tables as Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import json

from eftgan.reports.tables import Cell, Table
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
CSV_COLUMNS = ["run", "method", "seed", "trained_through", "tested_on", "metric", "value", "n", "details"]


def markdown_table(table: Table) -> str:
    """A GitHub-style table; a column's group is written into its heading."""
    headings = [f"{group} {column}".strip() for group, column in _with_groups(table)]
    lines = [f"**{table.caption}**", "", _md_row(headings), _md_row(["---"] + ["--:"] * (len(headings) - 1))]
    lines += [_md_row([_md_cell(cell) for cell in row]) for row in table.rows]
    lines += ["", *(f"{note}  " for note in table.notes)]
    return "\n".join(lines) + "\n"


def tex_table(table: Table, label: str) -> str:
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
        rf"  \label{{{label}}}",
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


def _with_groups(table: Table) -> list[tuple[str, str]]:
    groups = [name for name, width in table.groups for _ in range(width)] or [""] * len(table.columns)
    return list(zip(groups, table.columns, strict=True))


def _md_row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _md_cell(cell: Cell) -> str:
    return (f"**{cell.text}**" if cell.best else cell.text) + cell.marks


def _tex_cell(cell: Cell) -> str:
    text = tex(cell.text)
    return (rf"\textbf{{{text}}}" if cell.best else text) + tex(cell.marks)
