"""One forking server and one undisturbed run of each program for all tests here."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from harness import PROGRAMS, Server, everything, fresh_copy


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


class References(dict):
    """Undisturbed runs by the program's name, each made when it is first asked for."""

    def __init__(self, server: Server, root: Path) -> None:
        super().__init__()
        self.server, self.root = server, root
        (root / "nothing").mkdir()
        (root / "pictures" / "raw").mkdir(parents=True)
        for number in range(12):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "pictures" / "raw" / f"{number:02d}.png")

    def __missing__(self, name: str) -> Reference:
        command, start = PROGRAMS[name]
        if start in PROGRAMS:
            self[start]  # that program's folder is what this one starts from
        place = fresh_copy(self.root / start, self.root / name)
        points = self.server.points(command, place)
        self[name] = Reference(command, self.root / start, everything(place), points)
        return self[name]


@pytest.fixture(scope="session")
def references(server, tmp_path_factory) -> References:
    """Undisturbed training of GANs and classifiers, evaluation and data preparation."""
    return References(server, tmp_path_factory.mktemp("references"))
