"""Sample grids of a run: which pictures there are, and how they are embedded in the page."""

import base64
import functools
import io
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from eftgan.errors import UserError
from eftgan.reports.results import MOST_SHOWN
from eftgan.reports.runs import Run

Key = TypeVar("Key")
MAX_SIDE = 512  # pixels of an embedded grid: sharp on a phone and in print, and the page stays small
THUMBNAIL = 96  # the same where there are many tasks


@dataclass(frozen=True)
class Grids:
    """The pictures of one run: real ones by task, and samples by (after task, of task), counted from 0."""

    real: dict[int, Path]
    after: dict[tuple[int, int], Path]


def find_grids(run: Run) -> Grids | None:
    """The grids that training left in the run folder; none where it left none.

    Of long sequences only those of tasks just learned, and of all tasks at the end.
    """
    tasks, last = range(len(run.tasks)), len(run.tasks) - 1
    real = {i: run.folder.real_grid(i, run.tasks[i]) for i in tasks}
    cells = {(i, j) for j in tasks for i in ((j, last) if is_long(run) else range(j, last + 1))}
    after = {(i, j): run.folder.sample_grid(run.tasks, i, j) for i, j in sorted(cells)}
    found = Grids(_existing(real), _existing(after))
    return found if found.after else None


def _existing(grids: dict[Key, Path]) -> dict[Key, Path]:
    return {key: path for key, path in grids.items() if os.path.isfile(path)}


def is_long(run: Run) -> bool:
    """Whether there are too many tasks to show each after every other."""
    return len(run.tasks) > MOST_SHOWN


def data_uri(path: Path, side: int = MAX_SIDE) -> str:
    """A picture as a data URI, scaled down to `side` pixels, in the smaller of PNG and JPEG."""
    try:
        return _data_uri(path.read_bytes(), side)
    except Exception as error:  # decoders raise whatever a damaged file makes of them
        raise UserError(f"{path} can't be read as a picture ({error}); delete it or sample again") from error


@functools.lru_cache(maxsize=1024)
def _data_uri(content: bytes, side: int) -> str:
    """Kept by content: where nothing is forgotten, most grids of a run are the same pictures."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # a small file must not become gigabytes
        with Image.open(io.BytesIO(content)) as opened:
            image = opened.convert("RGB")
    if max(image.size) > side:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    encoded = {"png": _encode(image, "PNG", optimize=True), "jpeg": _encode(image, "JPEG", quality=90)}
    kind, content = min(encoded.items(), key=lambda item: len(item[1]))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
