"""The score line: one measured number, and the JSONL file that every table and figure is made from."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


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
    details: dict[str, Any] = field(default_factory=dict)  # extractor, digests, spread, "carried", ...

    @property
    def key(self) -> tuple:
        """What makes two lines the same measurement."""
        return (self.run, self.method, self.seed, self.trained_through, self.tested_on, self.metric, self.n)


def append_scores(path: str | os.PathLike, scores: Iterable[Score]) -> None:
    """Add whole lines to the file; the rest of a line that an earlier interruption cut is removed first."""
    text = "".join(json.dumps(asdict(score), sort_keys=True) + "\n" for score in scores)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as handle:
        handle.seek(0)
        content = handle.read()
        handle.truncate(content.rfind(b"\n") + 1)
        handle.write(text.encode())
        handle.flush()
        os.fsync(handle.fileno())


def read_scores(path: str | os.PathLike) -> list[Score]:
    """Every whole line of the file; no file means no scores."""
    path = Path(path)
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]  # what follows the last newline was cut while writing
    return [Score(**json.loads(line)) for line in lines if line]
