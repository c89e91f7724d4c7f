"""A Hub on loopback with an empty local cache, and a trained run to share."""

from collections.abc import Iterator

import pytest

from eftgan.config import apply_override, build
from eftgan.data.lmdb import write_lmdb
from eftgan.data.shapes import ShapeImages
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun

from ..conftest import TINY
from .hub_server import TOKEN, Hub, serving

SECRET = "secret-place"  # in the path of the run and of its data
TASKS = ["discs", "stripes", "triangles", "checks"]


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    """A Hub that huggingface_hub talks to, logged in, with nothing in the local cache."""
    from huggingface_hub import constants
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # plain HTTP, as on machines without hf_xet
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture(scope="session")
def zoo(tmp_path_factory) -> GanRun:
    """A generator of four tasks, the first from an LMDB, measured by FD-random."""
    place = tmp_path_factory.mktemp(SECRET)
    pictures = ShapeImages("discs", count=24, size=38, seed=0)
    write_lmdb(place / "discs.lmdb", [(image.numpy(), None) for image in pictures.images], size=38)
    data: dict = {"out": str(place / "run")}
    tasks = ", ".join(f"{{name: {task}, data: 'shapes:{task}', limit: 24}}" for task in TASKS)
    words = (f"tasks=[{tasks}]", f"tasks.0.data={place}/discs.lmdb", "evaluation={features: random, samples: 8}")
    for word in (*TINY, *words):
        apply_override(data, word)
    return train_gan(build(GanExperiment, data), f"eftgan train gan --config {place}/mine.yaml")
