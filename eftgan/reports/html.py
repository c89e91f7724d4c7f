"""The report as one self-contained HTML page: no network, and no scripts but a filter where tasks are many."""

from html import escape
from pathlib import Path
from typing import assert_never

from eftgan.reports.items import (
    Caution,
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
from eftgan.reports.markup import css_class, html_table
from eftgan.reports.runs import Run, command_of, weight_digests
from eftgan.reports.samples import MAX_SIDE, THUMBNAIL, Grids, data_uri, is_long
from eftgan.reports.style import CSS

# The page's only script, on pages of many tasks: a card is shown if its caption has the text typed.
FILTER = "for (const card of this.nextElementSibling.children) card.hidden = !card.textContent.includes(this.value)"


def page(items: list[Item]) -> str:
    """The whole page."""
    heading = " ".join(item.text for item in items if isinstance(item, Title))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)} · eftgan report</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(map(html_item, items))
        + "\n</main>\n</body>\n</html>\n"
    )


def html_item(item: Item) -> str:
    """One item as HTML."""
    match item:
        case Title(text):
            return f"<h1>{escape(text)}</h1>"
        case Lead(text):
            return f'<p class="lead">{escape(text)}</p>'
        case Heading(text, anchor):
            return f"<h2{_attribute('id', anchor)}>{escape(text)}</h2>"
        case Paragraph(text):
            return f'<p class="summary">{escape(text)}</p>'
        case Caution(text):
            return f'<p class="caution">{escape(text)}</p>'
        case Table():
            return html_table(item)
        case Figure(svg, caption):
            return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        case HeatMaps():
            return _heat_maps(item)
        case Samples(text, shown):
            tables = ((_thumbnails if is_long(run) else _sample_table)(run, grids) for run, grids in shown)
            return f"<p>{escape(text)}</p>" + "".join(tables)
        case Provenance(runs):
            return "".join(map(_made, runs))
        case _:
            assert_never(item)


def _heat_maps(item: HeatMaps) -> str:
    maps = "".join(f"<div><h3>{escape(label)}</h3>{svg}</div>" for label, svg in item.maps)
    caption = f"<figcaption>{escape(item.caption)}</figcaption>"
    return f'<figure><div class="maps">{maps}</div>{item.legend}{caption}</figure>'


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
            rows.append(f"<td>{_image(grids.after.get((after, on)), alt, just_learned=after == on)}</td>")
        rows.append("</tr>")
    caption = f"{run.label}, seed {run.seed}"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Samples of {escape(caption)}">'
        f'<table class="samples"><caption><span>{escape(caption)}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _thumbnails(run: Run, grids: Grids) -> str:
    """A small card for each task of a long sequence, and a field that hides those without the words typed."""
    last, caption = len(run.tasks) - 1, f"{run.label}, seed {run.seed}"
    cards = []
    for on, task in enumerate(run.tasks):
        pictures = {"real": grids.real.get(on), "just learned": grids.after.get((on, on))}
        if (end := grids.after.get((last, on))) != grids.after.get((on, on)):
            pictures["at the end"] = end
        images = "".join(_image(path, f"{task}, {what}", side=THUMBNAIL) for what, path in pictures.items())
        cards.append(f"<figure>{images}<figcaption>{on + 1} {escape(task)}</figcaption></figure>")
    return (
        f"<h3>{escape(caption)}</h3>"
        f'<input type="search" placeholder="filter tasks" aria-label="Filter the tasks of {escape(caption)}" '
        f'oninput="{FILTER}"><div class="cards">{"".join(cards)}</div>'
    )


def _image(path: Path | None, alt: str, *, just_learned: bool = False, side: int = MAX_SIDE) -> str:
    if path is None:
        return ""
    return f'<img src="{data_uri(path, side)}" alt="{escape(alt)}"{css_class(just=just_learned)}>'


def _made(run: Run) -> str:
    """Command, versions and digests of one run; the long parts folded away."""
    pairs = {"method": f"{run.label}, seed {run.seed}", "folder": str(run.folder.path)}
    versions = run.info.get("versions")
    if versions and isinstance(versions, dict):
        pairs["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in pairs.items())
    text = command_of(run)
    command = f"<pre>{escape(text)}</pre>" if text else ""
    digests = "\n".join(f"{digest}  {path}" for path, digest in weight_digests(run.folder).items())
    folded = _folded("Digests of the weights (sha256)", digests) + _folded("config.yaml", run.config)
    return f"<h3>{escape(run.name)}</h3>{command}<dl>{listed}</dl>{folded}"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>" if text else ""


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""
