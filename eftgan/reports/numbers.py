"""Numbers as people read them, and means of numbers of any size."""

import math
import statistics
from collections.abc import Collection, Sequence

LARGE = 1e15  # from here on powers of ten are easier to read than digits


def count(number: float) -> str:
    """18647233 -> '18.65 M'."""
    if abs(number) >= LARGE:
        return f"{number:.2e}"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.2f} {unit}"
    return f"{number:g}"


def percent(share: float) -> str:
    """0.0473 -> '4.73 %'."""
    return f"{share * 100:.2f} %" if abs(share) < LARGE else f"{share * 100:.2e} %"


def extent(numbers: Collection[int]) -> str:
    """{100, 5000} -> '100 to 5,000'."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def mean(values: Sequence[float]) -> float:
    """Their mean; NaN if any of them is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan
    try:
        return statistics.fmean(values)
    except OverflowError:  # of the sum
        return math.fsum(value / len(values) for value in values)


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation of two or more finite values."""
    try:
        return statistics.stdev(values)
    except OverflowError:
        return math.inf
