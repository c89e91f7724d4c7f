"""Small figures as inline SVG: they take the page's colours, so they follow its light and dark scheme."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeGuard

from eftgan.evaluation.metrics import Metric
from eftgan.reports.results import Result, shown_of
from eftgan.reports.style import COLOURS as PALETTE
from eftgan.reports.style import FIGURES

# light (good) to dark (bad), even in lightness; readable in grey print and with colour blindness
HEAT = [(253, 243, 226), (252, 205, 150), (244, 148, 92), (206, 81, 66), (140, 32, 50), (74, 14, 38)]
DRAWABLE = 1e300  # values beyond stand in tables only: their sums and differences are not finite
COLOURS = 8  # classes s0 to s7 of the style sheet
CHARACTER, LABEL_GAP, PLOT = 8, 15, 300  # pixels: of a wide letter, between labels, the least width of the lines
MARKERS = ("circle", "square", "diamond", "triangle")


@dataclass(frozen=True)
class Line:
    """One named line: a value for each task (none where unknown), and its spread over seeds."""

    label: str
    values: Sequence[float | None]
    spread: Sequence[float | None] = ()
    colour: int = 0  # a method keeps its colour and marker through all figures
    reference: bool = False  # drawn dashed and grey: something to compare with, not a result

    @property
    def kind(self) -> str:
        return "ref" if self.reference else f"s{self.colour % COLOURS}"

    @property
    def points(self) -> list[tuple[int, float, float]]:
        """What can be drawn: (place, value, spread)."""
        spread = [*self.spread, *[None] * (len(self.values) - len(self.spread))]
        pairs = enumerate(zip(self.values, spread, strict=True))
        return [(i, v, s if _drawable(s) else 0.0) for i, (v, s) in pairs if _drawable(v)]


def _drawable(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and abs(value) < DRAWABLE


def standalone(svg: str) -> str:
    """An inline figure as a file of its own, for documents and papers."""
    style = f"<style>{PALETTE}{FIGURES}</style>"
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("<title>", f"{style}<title>", 1)


def heat_map(result: Result, low: float, high: float) -> str:
    """Tasks down, after-task across; darker is worse. `low`, `high`: the range all methods share."""
    places, metric = shown_of(len(result.tasks)), result.metric
    tasks = [result.tasks[place] for place in places]
    numbers = len(tasks) <= 10
    cell_w, cell_h = ((56, 34) if len(tasks) <= 6 else (40, 28)) if numbers else (22, 22)
    left = 14 + 7 * max(len(task) for task in tasks)
    width, height = left + cell_w * len(tasks) + 4, 40 + cell_h * len(tasks)
    parts = [_text(left + cell_w * len(tasks) / 2, 12, "after task", "axis", "middle")]
    for i in range(len(tasks)):
        if numbers or (i + 1) % 5 == 0 or i == 0:
            parts.append(_text(left + cell_w * (i + 0.5), 30, str(places[i] + 1), "axis", "middle"))
        parts.append(_text(left - 8, 40 + cell_h * (i + 0.5) + 4, tasks[i], "axis", "end"))
    for on in range(len(tasks)):
        for after in range(len(tasks)):
            x, y = left + cell_w * after, 40 + cell_h * on
            value = result.cell(places[after], places[on])
            if value is None or not math.isfinite(value.mean):
                continue
            share = _share(value.mean, low, high, metric)
            fill, ink = _heat(share)
            title = escape(f"{tasks[on]} after {tasks[after]}: {metric.text(value.mean, value.std)}")
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{cell_w - 2}" height="{cell_h - 2}" rx="2" '
                f'fill="{fill}"><title>{title}</title></rect>'
            )
            if numbers:
                ink_style = f' style="fill:{ink}"'
                text = metric.text(value.mean)
                parts.append(_text(x + cell_w / 2, y + cell_h / 2 + 4, text, "value", "middle", ink_style))
    alt = f"{metric.name} of each task (rows) after each task (columns) for {result.label}; darker is worse"
    return _svg(width, height, parts, alt)


def heat_legend(low: float, high: float, metric: Metric) -> str:
    """The colour scale, from best to worst."""
    best, worst = (low, high) if metric.lower_is_better else (high, low)
    steps = 24
    parts = [
        f'<rect x="{100 + 6 * i}" y="4" width="6.5" height="12" fill="{_heat(i / (steps - 1))[0]}"/>'
        for i in range(steps)
    ]
    parts.append(_text(94, 14, f"better {metric.text(best)}", "axis", "end"))
    parts.append(_text(100 + 6 * steps + 6, 14, f"{metric.text(worst)} worse", "axis", "start"))
    return _svg(350, 20, parts, f"Colour scale from {metric.text(best)}, best, to {metric.text(worst)}, worst")


def heat_range(results: Sequence[Result]) -> tuple[float, float]:
    """The range of the colours: shares from none to all; other values from 0 to the worst of all methods.

    At least twice the worst value of a task just learned, so that only what is forgotten looks dark.
    """
    if results[0].metric.unit == " %":
        return 0.0, 100 / results[0].metric.scale
    cells = [(cell, score.value) for result in results for seed in result.seeds for cell, score in seed.lines.items()]
    learned = [value for (after, on), value in cells if after == on and _drawable(value)]
    finite = [value for _, value in cells if _drawable(value)]
    return min([0.0, *finite]), max([*finite, *(2 * value for value in learned), 1e-9])


def line_chart(lines: Sequence[Line], ticks: Sequence[str], *, x_label: str, y_label: str, alt: str) -> str:
    """A line for each method over the tasks, named at its end; each has at least one point."""
    known = [value + sign * s for line in lines for _, value, s in line.points for sign in (1, -1)]
    scale = _nice_scale(min(0.0, *known), max(0.0, *known))
    top, bottom = 30, 52
    left = max(40, 12 + CHARACTER * max(len(f"{tick:g}") for tick in scale), CHARACTER / 2 * len(ticks[0]))
    right = max(24 + CHARACTER * max(len(line.label) for line in lines), CHARACTER / 2 * len(ticks[-1]))
    width = max(520, left + right + PLOT)
    height = max(290, top + LABEL_GAP * (len(lines) + 1))

    def x(i: float) -> float:
        return left + (width - left - right) * (i / max(1, len(ticks) - 1) if len(ticks) > 1 else 0.5)

    def y(value: float) -> float:
        return height - bottom - (height - top - bottom) * (value - scale[0]) / (scale[-1] - scale[0])

    middle = (left + width - right) / 2
    parts = [_text(4, 14, y_label, "axis", "start"), _text(middle, height - 4, x_label, "axis", "middle")]
    for tick in scale:
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(_text(left - 8, y(tick) + 4, f"{tick:g}", "axis", "end"))
    every = math.ceil(len(ticks) / 8)
    for i, name in enumerate(ticks):
        if i % every == 0:
            parts.append(_text(x(i), height - bottom + 20, name, "axis", "middle"))
    ends = _spread_labels([y(line.points[-1][1]) for line in lines], height - LABEL_GAP)
    for line, end in zip(lines, ends, strict=True):
        parts += _draw(line, x, y)
        parts.append(_text(width - right + 12, end + 4, line.label, f"name {line.kind}", "start"))
    return _svg(width, height, parts, alt)


def _draw(line: Line, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    name = line.kind
    path = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value, _ in line.points)
    parts = [f'<polyline class="line {name}" points="{path}"/>']
    for i, value, spread in line.points:
        if spread:
            parts.append(
                f'<line class="line thin {name}" x1="{x(i):.1f}" x2="{x(i):.1f}" '
                f'y1="{y(value - spread):.1f}" y2="{y(value + spread):.1f}"/>'
            )
        if not line.reference:
            parts.append(_marker(MARKERS[line.colour % len(MARKERS)], x(i), y(value), name))
    return parts


def _marker(shape: str, x: float, y: float, name: str) -> str:
    if shape == "circle":
        return f'<circle class="mark {name}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    corners = {
        "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
        "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0)],
        "triangle": [(0, -5), (5, 4), (-5, 4)],
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="mark {name}" points="{path}"/>'


def _spread_labels(heights: list[float], lowest: float = math.inf) -> list[float]:
    """Move labels apart, so that none covers another and none lies below `lowest`: down first, then up."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved, previous = list(heights), -math.inf
    for i in order:
        previous = moved[i] = max(heights[i], previous + LABEL_GAP)
    following = lowest + LABEL_GAP
    for i in reversed(order):
        following = moved[i] = min(moved[i], following - LABEL_GAP)
    return moved


def _nice_scale(low: float, high: float) -> list[float]:
    """Four to eight round ticks that cover the range."""
    span = high - low if high - low > 1e-9 else 1.0  # less is none: ticks are rounded
    step = 10 ** math.floor(math.log10(span / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if span / (step * factor) <= 5)
    start = math.floor(low / step + 1e-9)
    stop = max(start + 1, math.ceil(high / step - 1e-9))
    return [round(i * step, 12) for i in range(start, stop + 1)]


def _share(value: float, low: float, high: float, metric: Metric) -> float:
    share = (value - low) / (high - low) if high > low else 0.0
    return share if metric.lower_is_better else 1 - share


def _heat(share: float) -> tuple[str, str]:
    """Fill and ink for a share from 0 (best) to 1 (worst)."""
    position = min(max(share, 0.0), 1.0) * (len(HEAT) - 1)
    i = min(int(position), len(HEAT) - 2)
    mixed = [round(a + (b - a) * (position - i)) for a, b in zip(HEAT[i], HEAT[i + 1], strict=True)]
    luminance = 0.2126 * mixed[0] + 0.7152 * mixed[1] + 0.0722 * mixed[2]
    return "#{:02x}{:02x}{:02x}".format(*mixed), "#1a1a1a" if luminance > 125 else "#ffffff"


def _text(x: float, y: float, text: str, kind: str, anchor: str, extra: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _svg(width: float, height: float, parts: list[str], alt: str) -> str:
    alt = escape(alt, quote=True)
    return (
        f'<svg role="img" aria-label="{alt}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}"><title>{alt}</title>{"".join(parts)}</svg>'
    )
