"""What trackers (TensorBoard, W&B and others of Accelerate's) are told beside the losses: scores, growth, pictures."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from PIL import Image

from eftgan.names import REAL
from eftgan.runfolder import RunFolder
from eftgan.scores import UNCHANGED, Score, read_scores

Picture = np.ndarray  # (H, W, 3), uint8

# How trackers that take pictures want them: most a list of them.
FORMS: dict[str, Callable[[Picture], tuple[Any, dict[str, Any]]]] = {
    "tensorboard": lambda picture: (picture[None], {"dataformats": "NHWC"}),
    "aim": lambda picture: (picture, {}),
    "clearml": lambda picture: (picture, {}),
}


@contextlib.contextmanager
def tracking(accelerator: Accelerator, folder: RunFolder, step: int) -> Iterator[None]:
    """Tell the trackers of the scores and pictures that come into a run's folder inside the block.

    They are found by looking at the folder, so that whoever measures or draws need not know of trackers.
    """
    if not accelerator.trackers or not accelerator.is_main_process:
        yield
        return
    lines, pictures = _lines(folder), _pictures(folder)
    yield
    if new := [line for key, line in _lines(folder).items() if key not in lines]:
        accelerator.log(named_scores(new), step=step)
    drawn = [path for path, time in _pictures(folder).items() if pictures.get(path) != time]
    log_pictures(accelerator, {_title(path): _read(path) for path in sorted(drawn)}, step)


def named_scores(scores: list[Score]) -> dict[str, float]:
    """Values as trackers name them: birds/FID, birds/growth; with "real-" in front where real images are compared."""
    told = [score for score in scores if score.metric != UNCHANGED]
    return {f"{s.tested_on}/{'real-' * (s.trained_through == REAL)}{s.metric}": s.value for s in told}


def log_pictures(accelerator: Accelerator, pictures: Mapping[str, Picture], step: int) -> None:
    """Hand pictures to the trackers that take some."""
    for tracker in accelerator.trackers if pictures else ():
        form = FORMS.get(tracker.name, lambda picture: ([picture], {}))
        for title, picture in pictures.items():
            if hasattr(tracker, "log_images"):
                shaped, options = form(picture)
                tracker.log_images({title: shaped}, step=step, **options)


def _lines(folder: RunFolder) -> dict[tuple, Score]:
    return {(*line.cell, line.n, line.value): line for line in read_scores(folder.scores)}


def _pictures(folder: RunFolder) -> dict[Path, int]:
    """The grids that are drawn after a task, and when each was."""
    return {path: path.stat().st_mtime_ns for path in folder.samples.glob("*/[0-9]*.png")}


def _title(path: Path) -> str:
    """samples/after-02-birds/01-cats.png is samples/01-cats at that step; samples/real/01-cats.png is real/01-cats."""
    return f"{path.parent.name if path.parent.name == REAL else 'samples'}/{path.stem}"


def _read(path: Path) -> Picture:
    with Image.open(path) as image:
        return np.array(image.convert("RGB"))
