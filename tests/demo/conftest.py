"""Small trained runs for the page, once per session: a GAN, a comparison of two, a classifier."""

from pathlib import Path

import pytest

from eftgan.config import apply_override, build

from ..conftest import TINY, TINY_CLASSES


def overridden(experiment_type, out: Path, *words: str):
    data: dict = {"out": str(out)}
    for word in words:
        apply_override(data, word)
    return build(experiment_type, data)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory) -> Path:
    """Fine-tuning and EFT, as `eftgan compare` leaves them: a folder each."""
    from eftgan.gan.experiment import GanExperiment
    from eftgan.gan.kind import train_gan

    out = tmp_path_factory.mktemp("compare")
    quick = ("training.steps=3", "training.learning_rate=0.01")
    for method in ("finetune", "eft"):
        words = (*TINY, *quick, f"method={{name: {method}}}")
        train_gan(overridden(GanExperiment, out / f"{method}-seed0", *words), "test")
    return out


@pytest.fixture(scope="session")
def gan(comparison) -> Path:
    return comparison / "eft-seed0"


@pytest.fixture(scope="session")
def classes(tmp_path_factory) -> Path:
    from eftgan.classifier.experiment import ClassifierExperiment
    from eftgan.classifier.kind import CLASSIFIERS

    out = tmp_path_factory.mktemp("classes") / "run"
    CLASSIFIERS.train(overridden(ClassifierExperiment, out, *TINY_CLASSES), "test")
    return out
