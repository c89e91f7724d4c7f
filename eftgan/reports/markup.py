"""Building blocks of the HTML page."""

from html import escape

from eftgan.reports.items import Cell, Table


def html_table(table: Table) -> str:
    """A table with its caption and notes; it scrolls inside its own frame where the page is narrow."""
    starts = _group_starts(table)
    head = ""
    if table.groups:
        cells = "".join(
            f'<th class="group{" first" if i else ""}" colspan="{width}" scope="colgroup">{escape(name)}</th>'
            for i, (name, width) in enumerate(table.groups)
        )
        head = f"<tr>{cells}</tr>"
    columns = "".join(
        f'<th scope="col"{css_class(first=i in starts)}>{escape(column)}</th>' for i, column in enumerate(table.columns)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(cell, i, i in starts) for i, cell in enumerate(row)) + "</tr>" for row in table.rows
    )
    notes = f'<p class="note">{escape(" ".join(table.notes))}</p>' if table.notes else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption, quote=True)}">'
        f"<table><caption><span>{escape(table.caption)}</span></caption>"
        f"<thead>{head}<tr>{columns}</tr></thead><tbody>{rows}</tbody></table></div>{notes}"
    )


def _cell(cell: Cell, column: int, first: bool) -> str:
    note = f' title="{escape(cell.note, quote=True)}"' if cell.note else ""
    if column == 0:
        return f'<th scope="row"{note}>{escape(cell.text)}</th>'
    return f"<td{css_class(first=first, best=cell.best, muted=cell.muted)}{note}>{_spread(cell.text)}{cell.marks}</td>"


def _spread(text: str) -> str:
    """The spread in smaller type, so that the values stand out."""
    value, sign, spread = escape(text).partition(" ± ")
    return f'{value} <span class="spread">± {spread}</span>' if sign else value


def _group_starts(table: Table) -> set[int]:
    starts, position = set(), 0
    for _, width in table.groups:
        if position:
            starts.add(position)
        position += width
    return starts


def css_class(**kinds: bool) -> str:
    """The class attribute with the names that are wanted; empty if there are none."""
    names = [name for name, wanted in kinds.items() if wanted]
    return f' class="{" ".join(names)}"' if names else ""
