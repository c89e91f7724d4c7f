"""One forking server and one undisturbed run of each program for all tests here."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from harness import EVALUATE, PREPARE, TRAIN, Server, everything, fresh_copy


@dataclass(frozen=True)
class Reference:
    """A command, what it starts from, what it leaves undisturbed, and where it could be disturbed."""

    command: list[str]
    before: Path
    after: dict[str, str]
    points: list[str]


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def references(server, tmp_path_factory) -> dict[str, Reference]:
    """Undisturbed training, evaluation and data preparation."""
    root = tmp_path_factory.mktemp("references")
    starts = {"train": root / "nothing", "evaluate": root / "train", "prepare": root / "pictures"}
    starts["train"].mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        (starts["prepare"] / "raw").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(starts["prepare"] / "raw" / f"{number:02d}.png")
    found = {}
    for name, command in (("train", TRAIN), ("evaluate", EVALUATE), ("prepare", PREPARE)):
        place = fresh_copy(starts[name], root / name)
        points = server.points(command, place)
        found[name] = Reference(command, starts[name], everything(place), points)
    return found
