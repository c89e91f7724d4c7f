"""What the paper prints: `paper.yaml` as typed tables, checked when it is read."""

import difflib
import functools
import shlex
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from eftgan.config import build, parse_yaml
from eftgan.errors import UserError
from eftgan.evaluation.metrics import METRICS
from eftgan.studies.paper.protocols import Protocol

FILE = Path(__file__).with_name("paper.yaml")


@dataclass(frozen=True)
class Figure:
    """One number of every row: what it is called, and how ours is read from a run."""

    name: str
    title: str
    digits: int
    reads: Literal["final", "cost", "parameters", "flops"] = "final"  # final: the metric's average after the last task
    metric: str | None = None

    def __post_init__(self) -> None:
        if (self.reads == "final") != (self.metric in METRICS):
            raise UserError(f"figure {self.name}: final is read from a metric, and nothing else is")

    def text(self, value: float, spread: float | None = None) -> str:
        shown = f"{value:.{self.digits}f}"
        return shown if spread is None else f"{shown} ± {spread:.{self.digits}f}"


@dataclass(frozen=True)
class Series:
    """Several numbers of every row.

    after: the average over the tasks seen, after each task; each: every task after the last one; matrix: every task
    after itself and each later one.
    """

    kind: Literal["after", "each", "matrix"]
    metric: str
    title: str

    def cells(self, tasks: int) -> list[tuple[int, int]]:
        """(after, on) of each number, from 0, in the order of the paper's; of `after` the average is meant."""
        if self.kind == "matrix":
            return [(after, on) for on in range(tasks) for after in range(on, tasks)]
        return [(task if self.kind == "after" else tasks - 1, task) for task in range(tasks)]


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    name: str
    recipe: str  # of the table's config, or a method
    growth: float | None = None  # in %, as the paper prints it
    paper: dict[str, float | list[float]] = field(default_factory=dict)  # by figure; with a spread: [value, spread]
    curve: list[float] = field(default_factory=list)  # the series
    only_here: bool = False  # the paper's table has no such row

    def printed(self, figure: Figure, series: Series | None) -> tuple[float, float | None] | None:
        """The paper's value and its spread; where the series ends with the average, that is it."""
        value = self.paper.get(figure.name)
        if value is None and self.curve and series and (series.kind, series.metric) == ("after", figure.metric):
            value = self.curve[-1]
        if isinstance(value, list):
            return value[0], value[1]
        return None if value is None else (value, None)


@dataclass(frozen=True)
class Form:
    """A table as it fits a CPU: another config, or words that change its own."""

    name: str
    about: str
    words: list[str]
    with_sgd: list[str] = field(default_factory=list)  # further words, of recipes that do not train with Adam
    config: str | None = None


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper."""

    name: str  # what people type
    title: str
    place: str  # its number in print
    label: str  # in the paper's source
    config: str
    figures: list[Figure]
    rows: list[Row]
    series: Series | None = None
    orders: int | None = None  # how many orders of tasks the paper averages over, where it says so
    small: str | None = None  # its form for a CPU
    drawn: bool = False  # a figure without numbers
    notes: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        return f"{self.place[:1].upper()}{self.place[1:]}: {self.title}"


@dataclass(frozen=True)
class Paper:
    """All of them."""

    awaited: list[str]
    data: dict[str, str]  # what configs call a set -> how to get it, with PLACE and SIZE for what a config asks for
    forms: list[Form]
    protocols: list[Protocol]
    tables: list[PaperTable]

    def __post_init__(self) -> None:
        for names in ([each.name for each in part] for part in (self.forms, self.protocols, self.tables)):
            if len(set(names)) < len(names):
                raise UserError(f"a name is given twice: {', '.join(sorted(names))}")
        for table in self.tables:
            _check_rows(table)
            if table.small is not None:
                _named(table.small, self.forms, f"table {table.name}: small")

    def table(self, name: str) -> PaperTable:
        return _named(name, self.tables, "eftgan paper")

    def form(self, table: PaperTable) -> Form:
        if table.small is None:
            raise UserError(f"--small: there is no small form of {table.name}")
        return _named(table.small, self.forms, "--small")

    def remedy(self, name: str, place: str, size: int) -> str:
        """What to do where a set is missing; a place that somebody made up has no name here."""
        if name not in self.data:
            return f"no {place}: check the path"
        how = self.data[name].replace("SIZE", str(size)).replace("PLACE", shlex.quote(place))
        return f"no {place}: {how}; or --data {name}=PATH"

    def protocol(self, names: Sequence[str]) -> list[Protocol]:
        """What the names stand for, each once."""
        chosen = [_named(name, self.protocols, "--protocol") for name in names]
        parts = [part for each in chosen for part in (self.protocol(each.joins) if each.joins else [each])]
        return list(dict.fromkeys(parts))


@functools.cache
def load_paper() -> Paper:
    """The data file."""
    return build(Paper, parse_yaml(FILE.read_text(encoding="utf-8"), FILE.name), FILE.name)


def _check_rows(table: PaperTable) -> None:
    """Every printed number belongs to a figure or to the series, which has as many for every row."""
    figures = {figure.name for figure in table.figures}
    theirs = [row for row in table.rows if not row.only_here]
    if any(row.paper or row.curve or row.growth for row in table.rows if row.only_here):
        raise UserError(f"table {table.name}: a row that is only here has a figure of the paper's")
    for row in theirs:
        where = f"table {table.name}, {row.name}"
        if unknown := set(row.paper) - figures:
            raise UserError(f"{where}: no figure {unknown.pop()!r}")
        if any(isinstance(value, list) and len(value) != 2 for value in row.paper.values()):
            raise UserError(f"{where}: give a value, or [value, spread]")
        if not table.drawn and any(row.printed(figure, table.series) is None for figure in table.figures):
            raise UserError(f"{where}: the paper's figures are missing")
    if len({len(row.curve) for row in theirs}) > 1 or (table.series is None and any(row.curve for row in theirs)):
        raise UserError(f"table {table.name}: every row needs a series of the same length")


class _Named(typing.Protocol):
    @property
    def name(self) -> str: ...


AnyNamed = TypeVar("AnyNamed", bound=_Named)


def _named(name: str, among: Sequence[AnyNamed], where: str) -> AnyNamed:
    """The one of that name."""
    names = [each.name for each in among]
    if name in names:
        return among[names.index(name)]
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {near[0]}? There" if near else "there"
    raise UserError(f"{where}: no {name!r}; {hint} are: {', '.join(names)}")
