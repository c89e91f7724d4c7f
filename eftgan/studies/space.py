"""What a search may choose: `key=1,2,4` is one of these values, `key=1e-4..1e-2:log` a number between two."""

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eftgan.config import parse_yaml
from eftgan.errors import UserError

_NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(:log)?")

Params = dict[str, Any]  # by key, a number of a range, or the text of a choice


@dataclass(frozen=True)
class Axis:
    """A key, and the values that it may take."""

    key: str
    choices: tuple[str, ...] = ()  # each as JSON, so that any value can be one
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False  # whole numbers only

    def override(self, value: Any) -> str:
        """The word that sets it."""
        return f"{self.key}={value if isinstance(value, str) else json.dumps(value)}"


def parse_words(words: Sequence[str]) -> tuple[list[Axis], list[str]]:
    """The keys to search over, and the words that hold for all trials."""
    axes, fixed = [], []
    for word in words:
        key, separator, text = word.partition("=")
        axis = _axis(key.strip(), text, word) if separator and not key.endswith("+") else None
        if axis is None:
            fixed.append(word)
        else:
            axes.append(axis)
    twice = [axis.key for axis in axes if sum(other.key == axis.key for other in axes) > 1]
    if twice:
        raise UserError(f"{twice[0]}: given twice; list all of its values in one word")
    return axes, fixed


def _axis(key: str, text: str, word: str) -> Axis | None:
    """None for a single value."""
    if found := _RANGE.fullmatch(text.strip()):
        low, high, log = float(found[1]), float(found[2]), bool(found[3])
        if not low < high or not all(map(math.isfinite, (low, high))) or (log and low <= 0):
            above = ", both above 0" if log else ""
            raise UserError(f"{word!r}: expected LOW..HIGH with LOW < HIGH{above}")
        whole = all(number.lstrip("+-").isdigit() for number in found.groups()[:2])
        return Axis(key, low=low, high=high, log=log, whole=whole)
    values = parse_yaml(f"[{text}]", word)
    if len(values) < 2:
        return None
    choices = tuple(dict.fromkeys(json.dumps(value) for value in values))
    if len(choices) < len(values):
        raise UserError(f"{word!r}: a value is given twice")
    return Axis(key, choices=choices)


def trials_wanted(axes: Sequence[Axis], asked: int) -> int:
    """As many as asked for, or all that there are."""
    every = combinations(axes)
    return asked if every is None else min(asked, len(every))


def combinations(axes: Sequence[Axis]) -> list[Params] | None:
    """All that there are, in the order in which they were typed; none where a range has no end of them."""
    if not all(axis.choices for axis in axes):
        return None
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(axis.choices for axis in axes))]
