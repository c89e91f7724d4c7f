"""What a report is made of: sections yield these items, and each writer knows how to write every type of them."""

from dataclasses import dataclass, field

from eftgan.reports.runs import Run
from eftgan.reports.samples import Grids


@dataclass(frozen=True)
class Title:
    """The report's heading."""

    text: str


@dataclass(frozen=True)
class Lead:
    """What the report was made from."""

    text: str


@dataclass(frozen=True)
class Heading:
    """The heading of a section; `id` is what links point to."""

    text: str
    id: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Plain sentences."""

    text: str


@dataclass(frozen=True)
class Caution:
    """Something that a reader must know before using the figures."""

    text: str


@dataclass(frozen=True)
class Cell:
    """A printed value and the marks behind it; `best` in its column, `muted` where there is no value."""

    text: str
    marks: str = ""
    best: bool = False
    muted: bool = False
    note: str = ""  # shown on hovering


@dataclass(frozen=True)
class Table:
    """A caption, an optional line of column groups (text, width), one line of columns, and rows."""

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    groups: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tex_label: str = ""  # tables that have one are written to table.tex


@dataclass(frozen=True)
class Figure:
    """An SVG drawing and its caption."""

    svg: str
    caption: str
    file: str = ""  # figures that have one are also written to a file of this name


@dataclass(frozen=True)
class HeatMaps:
    """One SVG drawing per method (label, drawing), with a common colour scale."""

    maps: list[tuple[str, str]]
    legend: str
    caption: str


@dataclass(frozen=True)
class Samples:
    """The sample grids of some runs, and how to read them."""

    text: str
    shown: list[tuple[Run, Grids]]


@dataclass(frozen=True)
class Provenance:
    """How the figures of these runs were made: command, versions, digests, config."""

    runs: list[Run]


Item = Title | Lead | Heading | Paragraph | Caution | Table | Figure | HeatMaps | Samples | Provenance
