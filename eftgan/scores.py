"""The score line: one measured number, and the JSONL file that every table and figure is made from."""

import functools
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_type_hints

from eftgan.errors import UserError
from eftgan.files import write_bytes
from eftgan.names import REAL as REAL  # a trained_through like the names of tasks

UNCHANGED = "unchanged"  # the metric of a line that says: after this task, every earlier one is the same bits as before
SUBJECT = ("weights", "reference", "extractor_digest")  # details: what was measured, against what, and with what


@dataclass(frozen=True)
class Score:
    """One number: how the model trained through one task does on (the same or an earlier) task."""

    run: str
    method: str
    seed: int
    trained_through: str  # name of the last task trained
    tested_on: str  # name of the task measured
    metric: str  # "FID", "KID", "FD-random", "accuracy", "growth", ...
    value: float
    n: int  # samples behind the value
    details: dict = field(default_factory=dict)  # extractor, digests, spread, "carried", ...

    @property
    def cell(self) -> tuple:
        """The place in the tables."""
        return (self.method, self.seed, self.trained_through, self.tested_on, self.metric)

    @property
    def subject(self) -> dict[str, str | None]:
        """The digests of what was measured; none for what the line does not tell. And the rule, if one was chosen."""
        chosen = {key: self.details[key] for key in ("inference",) if key in self.details}
        return {key: self.details.get(key) for key in SUBJECT} | chosen


def append_scores(path: str | os.PathLike, scores: Iterable[Score]) -> None:
    """Add lines to the file: all of them or, where the process ends meanwhile, none."""
    text = as_lines(scores)
    path = Path(path)
    before = path.read_bytes() if path.exists() else b""
    if text:
        write_bytes(path, before[: before.rfind(b"\n") + 1] + text.encode())


def as_lines(scores: Iterable[Score]) -> str:
    """The lines of a file."""
    return "".join(json.dumps(asdict(score), sort_keys=True) + "\n" for score in scores)


def read_scores(path: str | os.PathLike) -> list[Score]:
    """Every whole line of the file that still holds; no file means no scores.

    A line holds until a newer one of its cell is about something else: other weights, other images, another rule by
    which tasks were inferred.
    """
    path = Path(path)
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline was cut by some other program
    scores = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line]
    newest = {score.cell: _about(score) for score in scores}
    return [score for score in scores if _about(score) == newest[score.cell]]


def _about(score: Score) -> tuple[dict[str, str | None], str | None]:
    return score.subject, score.details.get("inference")


def _parse(line: bytes, where: str) -> Score:
    try:
        return _score(line)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"{where}: not a score ({error}); remove that line") from error


_TYPES = get_type_hints(Score)


@functools.lru_cache(maxsize=100_000)
def _score(line: bytes) -> Score:
    """Kept by content: a run reads its lines after every task, and all but the last few are those of before."""
    score = Score(**json.loads(line))
    for name, kind in _TYPES.items():
        if not isinstance(getattr(score, name), (int, float) if kind is float else kind):
            raise TypeError(f"{name} is not of type {kind.__name__}")
    float(score.value)  # a whole number may be too large for one
    return score
