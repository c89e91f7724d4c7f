"""Sample grids of a run: which pictures there are, and how they come into the page."""

import base64
import functools
import io
import re
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from eftgan.errors import UserError
from eftgan.reports.runs import Run

MAX_SIDE = 512  # pixels of an embedded grid: sharp on a phone and in print, and the page stays small
AFTER = re.compile(r"after-(\d+)-")


@dataclass(frozen=True)
class Grids:
    """The pictures of one run: real ones by task, and samples by (after task, of task), counted from 0."""

    real: dict[int, Path]
    after: dict[tuple[int, int], Path]


def find_grids(run: Run) -> Grids | None:
    """The grids that training left in `samples/`; none where it left none."""
    folder = run.folder / "samples"
    real = _numbered(folder / "real", len(run.tasks))
    after = {}
    for path in sorted(folder.glob("after-*-*")):
        match = AFTER.match(path.name)
        if match and 1 <= int(match[1]) <= len(run.tasks):
            grids = _numbered(path, len(run.tasks))
            after |= {(int(match[1]) - 1, task): grid for task, grid in grids.items()}
    return Grids(real, after) if after else None


def data_uri(path: Path) -> str:
    """A picture as a data URI, scaled down to `MAX_SIDE`, in the smaller of PNG and JPEG."""
    try:
        return _data_uri(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} can't be read as a picture ({error}); delete it or sample again") from error


@functools.lru_cache(maxsize=1024)
def _data_uri(content: bytes) -> str:
    """Kept by content: where nothing is forgotten, most grids of a run are the same pictures."""
    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGB")
    if max(image.size) > MAX_SIDE:
        image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
    encoded = {"png": _encode(image, "PNG", optimize=True), "jpeg": _encode(image, "JPEG", quality=90)}
    kind, content = min(encoded.items(), key=lambda item: len(item[1]))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _numbered(folder: Path, tasks: int) -> dict[int, Path]:
    """`01-cats.png` -> 0; numbers outside the sequence are left out."""
    found = {}
    for path in sorted(folder.glob("*.png")):
        number = path.name.partition("-")[0]
        if number.isdigit() and 1 <= int(number) <= tasks:
            found[int(number) - 1] = path
    return found


def _encode(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
