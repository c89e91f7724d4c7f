"""Measuring two sides in turns: what disturbs the machine disturbs both."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 15


@dataclass(frozen=True)
class Ratio:
    """One figure of the table: ours against a reference, the middle of all rounds and its spread."""

    name: str
    reference: str
    value: float
    low: float  # quartiles over the rounds
    high: float
    fastest: float  # the fastest round of each side: what a machine without other work would show
    goal: float | None = None  # None: a figure beside the others, to explain them
    ours_ms: float | None = None

    @property
    def reached(self) -> str:
        return "" if self.goal is None else "yes" if self.value <= self.goal else "no"

    def row(self) -> tuple[str, ...]:
        spread = "" if self.low == self.high else f"{self.low:.3g} to {self.high:.3g}"
        ours = "" if self.ours_ms is None else f"{self.ours_ms:.3g}"
        return (
            self.name,
            self.reference,
            f"{self.value:.3g}",
            spread,
            "" if self.low == self.high else f"{self.fastest:.3g}",
            "" if self.goal is None else f"{self.goal:g}",
            self.reached,
            ours,
        )


def measure(
    name: str,
    ours: Callable[[], object],
    reference: Callable[[], object],
    what: str,
    goal: float | None = None,
    rounds: int = ROUNDS,
) -> Ratio:
    """Time both sides by turns, each first as often as second; the ratio of each round is one sample."""
    for side in (ours, reference, ours, reference):
        side()
    mine, others = [], []
    for number in range(rounds):
        pairs = [(ours, mine), (reference, others)]
        for side, times in pairs if number % 2 else reversed(pairs):
            times.append(_seconds(side))
    ratios = [own / other for own, other in zip(mine, others, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Ratio(name, what, middle, low, high, min(mine) / min(others), goal, statistics.median(mine) * 1000)


def exact(name: str, value: float, what: str, goal: float) -> Ratio:
    """A ratio that is counted, not timed."""
    return Ratio(name, what, value, value, value, value, goal)


def repeat(side: Callable[[], object], times: int) -> Callable[[], None]:
    """A side that is too short to time alone."""

    def many() -> None:
        for _ in range(times):
            side()

    return many


def _seconds(side: Callable[[], object]) -> float:
    started = time.perf_counter()
    side()
    return time.perf_counter() - started
