"""What the report knows about a metric: which way is better, how it is called and printed."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How to read and print the values of one metric."""

    name: str
    lower_is_better: bool
    digits: int
    scale: float = 1.0  # from the value in the score line to the printed one
    unit: str = ""
    main: bool = False  # gets figures as well as a table

    @property
    def direction(self) -> str:
        return "lower is better" if self.lower_is_better else "higher is better"

    def text(self, value: float | None, std: float | None = None, *, sign: bool = False) -> str:
        """A value (of the score line's scale) as printed, with its spread over seeds where there is one."""
        if value is None:
            return "–"
        if not math.isfinite(value):
            return "not finite"
        shown = f"{value * self.scale:{'+' if sign else ''}.{self.digits}f}"
        if float(shown) == 0:
            shown = shown.replace("-", "").replace("+", "")
        return shown if std is None else f"{shown} ± {std * self.scale:.{self.digits}f}"


METRICS = [  # in the order in which the report shows them
    Metric("FID", True, 1, main=True),
    Metric("FD-random", True, 1, main=True),
    Metric("accuracy-CIL", False, 1, 100, " %", main=True),
    Metric("accuracy-TIL", False, 1, 100, " %", main=True),
    Metric("accuracy", False, 1, 100, " %", main=True),
    Metric("task-accuracy", False, 1, 100, " %"),
    Metric("KID", True, 4),
    Metric("KID-random", True, 3),
    Metric("seconds", True, 1, unit=" s"),
]
NOT_A_MATRIX = {"growth"}  # has its own table


def metrics_in(names: set[str]) -> list[Metric]:
    """The metrics to show, known ones first; an unknown one counts as lower-is-better with 3 digits."""
    known = [metric for metric in METRICS if metric.name in names]
    unknown = sorted(names - {metric.name for metric in METRICS} - NOT_A_MATRIX)
    return known + [Metric(name, True, 3) for name in unknown]


def count(number: float) -> str:
    """18647233 -> '18.65 M'."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.2f} {unit}"
    return f"{number:g}"


def percent(share: float) -> str:
    """0.0473 -> '4.73 %'."""
    return f"{share * 100:.2f} %"
