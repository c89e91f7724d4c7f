"""One metric along the training of a task: its curve, whether that is flat, and the file that keeps it.

All metrics that are measured while a task trains are distances: lower is better.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eftgan.errors import UserError
from eftgan.files import write_json

FLAT = 0.05  # the share of the best value that a gain must exceed for a curve not to be flat
FALLING = 0.10  # the gain in the second half of a task's steps from which on it ended too soon


@dataclass(frozen=True)
class Point:
    """A measurement after some steps of a task; `spread` is its own, as KID has."""

    step: int
    value: float
    spread: float | None = None


@dataclass(frozen=True)
class Curve:
    """The measurements of one task in the order of its steps."""

    task: str
    metric: str
    n: int  # images that were generated for each point
    points: tuple[Point, ...] = ()
    kept: int | None = None  # the step whose weights the finished task has; none while it trains
    foundation: bool = False  # whether all later tasks stand on weights that this one trained
    ended_flat: bool = False  # before its limit of steps

    def with_point(self, point: Point) -> "Curve":
        return replace(self, points=(*self.points, point))

    @property
    def best(self) -> Point:
        """The lowest point, of equals the first."""
        return min(self.points, key=lambda point: point.value)

    def is_flat(self, patience: int) -> bool:
        """Whether the last `patience` points brought no gain worth the name over those before them."""
        before, last = self.points[:-patience], self.points[-patience:]
        return bool(before) and not _gain_counts(_lowest(before), _lowest(last), FLAT)

    @property
    def late_gain(self) -> float | None:
        """By which share the best value fell in the second half of the steps; none where one half has no point."""
        halves = self._halves()
        return None if halves is None else _gain(*halves)

    @property
    def still_falls(self) -> bool:
        """Whether the second half of the steps brought so much that more of them would have brought more."""
        halves = self._halves()
        return halves is not None and _gain_counts(*halves, FALLING)

    @property
    def warning(self) -> str | None:
        """What there is to say of a task that others stand on and that ended too soon."""
        if not (self.foundation and self.still_falls):
            return None
        return (
            f"{self.task}: {self.metric} still fell by {100 * (self.late_gain or 0):.0f} % in the second half of its "
            f"{self.points[-1].step} steps, and every later task stands on these weights"
        )

    def _halves(self) -> tuple[Point, Point] | None:
        """The lowest points of both halves of the steps."""
        middle = self.points[-1].step / 2 if self.points else 0
        early = [point for point in self.points if point.step <= middle]
        return (_lowest(early), _lowest(self.points[len(early) :])) if early else None


def _lowest(points: Sequence[Point]) -> Point:
    return min(points, key=lambda point: point.value)


def _gain(before: Point, after: Point) -> float:
    return (before.value - after.value) / abs(before.value) if before.value else 0.0


def _gain_counts(before: Point, after: Point, share: float) -> bool:
    """Whether a gain exceeds both a share of the value and what two measurements differ by anyway."""
    return _gain(before, after) > share and before.value - after.value > (after.spread or 0.0)


def write_curve(path: Path, curve: Curve) -> None:
    """Write a task's curve, whole or not at all."""
    write_json(path, asdict(curve))


def read_curve(path: Path) -> Curve | None:
    """A task's curve; none where it has none."""
    if not path.is_file():
        return None
    try:
        facts = json.loads(path.read_text())
        points = tuple(Point(int(p["step"]), float(p["value"]), p["spread"]) for p in facts.pop("points"))
        return Curve(**facts, points=points)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not the curve of a task ({type(error).__name__}: {error}); remove it") from error
