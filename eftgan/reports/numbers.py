"""Numbers as people read them."""

from collections.abc import Collection


def count(number: float) -> str:
    """18647233 -> '18.65 M'."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.2f} {unit}"
    return f"{number:g}"


def percent(share: float) -> str:
    """0.0473 -> '4.73 %'."""
    return f"{share * 100:.2f} %"


def extent(numbers: Collection[int]) -> str:
    """{100, 5000} -> '100 to 5,000'."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
