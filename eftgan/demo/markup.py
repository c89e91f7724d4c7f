"""What a page shows, as HTML. Pictures stand inside it, so that none lies in a temporary file."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from eftgan.classifier.run import Answer
from eftgan.training.run import SavedRun

MOST_CLASSES = 5


class Figure(NamedTuple):
    """A picture and what it shows."""

    content: bytes
    kind: str  # png, webp
    says: str


def header(title: str, sentence: str, facts: Mapping[str, str]) -> str:
    """The top of the page."""
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items())
    return f'<header class="eft-top"><h1>{escape(title)}</h1><p>{escape(sentence)}</p><dl>{rows}</dl></header>'


def picture(figure: Figure, wide: bool = False) -> str:
    """A picture with its description, also for those who cannot see it."""
    return f'<figure class="eft-picture{" wide" if wide else ""}">{_image(figure)}</figure>'


def _image(figure: Figure) -> str:
    content = base64.b64encode(figure.content).decode()
    return f'<img alt="{escape(figure.says, quote=True)}" src="data:image/{figure.kind};base64,{content}">'


def command(words: Sequence[str]) -> str:
    """What to type for the same."""
    return f'<p class="eft-command">The same from a terminal: <code>{escape(" ".join(words))}</code></p>'


def columns(content: Mapping[str, Iterable[Figure]]) -> str:
    """Pictures under headings, side by side; where the page is narrow they scroll."""
    sections = "".join(
        f"<section><h3>{escape(name)}</h3>"
        + "".join(f"<figure>{_image(each)}<figcaption>{escape(each.says)}</figcaption></figure>" for each in figures)
        + "</section>"
        for name, figures in content.items()
    )
    return f'<div class="eft-columns" tabindex="0">{sections}</div>'


def note(text: str) -> str:
    """A quiet line."""
    return f'<p class="eft-note">{escape(text)}</p>'


def verdict(answers: Sequence[Answer], found: int, heading: str = "") -> str:
    """What a classifier says of an image: the inferred task, its classes, and how sure each task is."""
    best = answers[found]
    name, share = best.ranked[0]
    title = f"<h3>{escape(heading)}</h3>" if heading else ""
    classes = "".join(_bar(name, share, first=i == 0) for i, (name, share) in enumerate(best.ranked[:MOST_CLASSES]))
    tasks = "".join(
        _bar(f"{each.task}: {each.ranked[0][0]}", each.certainty, first=i == found) for i, each in enumerate(answers)
    )
    return (
        f'<section class="eft-verdict">{title}<p class="answer"><strong>{escape(name)}</strong> '
        f"<span>{share:.1%}, task {escape(best.task)}</span></p>"
        f"<h4>Classes of task {escape(best.task)}</h4><ul>{classes}</ul>"
        f"<h4>How sure each task is</h4><ul>{tasks}</ul></section>"
    )


def _bar(name: str, share: float, first: bool) -> str:
    return (
        f'<li{" class=first" if first else ""}><span class="name">{escape(name)}</span>'
        f'<span class="bar" style="--share:{share:.4f}"></span><span class="share">{share:.1%}</span></li>'
    )


def sentence_about(runs: Mapping[str, SavedRun[Any]]) -> str:
    """One sentence that says what the page is about."""
    (first, *others) = runs.values()
    tasks = in_words(first.trained)
    verb = "draws" if first.experiment.kind == "gan" else "knows"
    if others:
        return f"{len(runs)} runs of one sequence, {tasks}: how each method {verb} what it learned."
    noun, count = first.experiment.noun, len(first.trained)
    if count == 1:
        return f"One {noun} that {verb} {tasks}."
    return f"One {noun} that learned {count} tasks, one after another, and {verb} them all: {tasks}."


def in_words(names: Sequence[str], most: int = 8) -> str:
    """A list for a sentence; of a long one the beginning."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
