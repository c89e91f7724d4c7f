"""Calls of the real entry points in this process, and a small trained run to damage."""

import os
import runpy
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from eftgan.files import file_digest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # for data_prep, whatever the current folder is
WORDS = [
    "out=run",
    "network={stages: 1, base_size: 32, ngf: 4, ndf: 4, z_dim: 8}",
    "adapters={a: 2, b: 2}",
    "training={batch: 4, steps: 2, save_every_steps: 1, log_every_steps: 2}",
    "evaluation={features: random, samples: 8}",
    "tasks=[{name: discs, data: 'shapes:discs', limit: 16}, {name: checks, data: 'shapes:checks', limit: 16}]",
]
CLASSES = [
    "out=run",
    "sources=[{name: shapes/2, data: 'shapes:4'}]",
    "limit=24",
    "network={name: resnet8, size: 16}",
    "training={batch: 4, first: {epochs: 1}}",
]
# Written at every start of training, before anything can be wrong with the rest of the folder.
AT_EVERY_START = {".lock", "run.json"}


def listing(folder: Path) -> dict[str, str]:
    """Every path below a folder, and the digest of what is in it."""
    paths = [path for path in folder.rglob("*") if path.name not in AT_EVERY_START]
    return {str(path): file_digest(path) if path.is_file() else "" for path in paths}


@dataclass(frozen=True)
class Caller:
    """Runs a program in a folder and checks that it refuses: exit code 2, one message, nothing written."""

    place: Path
    read_streams: Callable

    def run(self, program: str, *words: object) -> tuple[int, str]:
        sys.argv = [program, *map(str, words)]
        try:
            if program.endswith(".py"):
                runpy.run_path(str(ROOT / program), run_name="__main__")
            elif program == "eftgan":
                from eftgan.commands import main

                main()
            else:
                from data_prep.__main__ import main

                main()
        except SystemExit as stop:
            return stop.code, self.read_streams().err
        return 0, self.read_streams().err

    def refuses(self, message: str, program: str, *words: object) -> None:
        before = listing(self.place)
        code, err = self.run(program, *words)
        assert code == 2, err
        assert err.count("error: ") == 1, err
        assert message in err
        assert "Traceback" not in err
        assert listing(self.place) == before

    def train(self, message: str, *words: object) -> None:
        self.refuses(message, "train_gan.py", *WORDS, *words)

    def learn(self, message: str, *words: object) -> None:
        self.refuses(message, "train_classifier.py", *CLASSES, *words)


@pytest.fixture
def call(tmp_path, capsys, monkeypatch) -> Caller:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    return Caller(tmp_path, capsys.readouterr)


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A finished run of two tasks."""
    from eftgan.config import apply_override, build
    from eftgan.gan.experiment import GanExperiment
    from eftgan.gan.kind import train_gan

    place, data = tmp_path_factory.mktemp("trained"), {}
    for word in WORDS:
        apply_override(data, word)
    before = Path.cwd()
    os.chdir(place)
    try:
        train_gan(build(GanExperiment, data), "test")
    finally:
        os.chdir(before)
    return place / "run"


@pytest.fixture
def run(trained, call) -> Path:
    """A copy of the trained run in the current folder."""
    return Path(shutil.copytree(trained, call.place / "run"))
