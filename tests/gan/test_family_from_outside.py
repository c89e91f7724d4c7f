"""A family of GANs of somebody's own: one line in GANS is enough to train, sample, measure, export and read it back."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest
import torch
from torch import nn

from eftgan import load_generator
from eftgan.evaluation.features import load_extractor
from eftgan.gan.export import export_generator
from eftgan.gan.kind import train_gan
from eftgan.gan.losses import ADVERSARIAL, Adversarial
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.kinds import open_run
from eftgan.models.gans import GANS, GanFamily
from eftgan.scores import read_scores


class Drawing(nn.Module):
    """Noise -> images, by transposed convolutions."""

    def __init__(self, z_dim: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ConvTranspose2d(z_dim, 2 * width, 4),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 4),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 2, 2),
            nn.Tanh(),
        )

    def forward(self, z: torch.Tensor) -> list[torch.Tensor]:
        return [self.body(z[:, :, None, None])]  # (B, 3, 32, 32)


class Judging(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.logits = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(self.body(x)).flatten()


@dataclass(frozen=True, kw_only=True)
class Sketch(GanFamily):
    title: ClassVar[str] = "Sketch"
    adversarial: ClassVar[str] = "hinge"

    name: Literal["sketch"] = "sketch"
    z_dim: int = 6
    width: int = 4

    @property
    def sizes(self) -> list[int]:
        return [32]

    def generator(self) -> nn.Module:
        return Drawing(self.z_dim, self.width)

    def discriminators(self) -> dict[str, nn.Module]:
        return {"discriminator": Judging(self.width)}

    def initialise(self, network: nn.Module, stream: torch.Generator) -> None:
        for parameter in network.parameters():
            nn.init.normal_(parameter, 0.0, 0.1, generator=stream)


HINGE = Adversarial(
    discriminator=lambda real, fake: (1 - real).relu().mean() + (1 + fake).relu().mean(),
    generator=lambda fake: -fake.mean(),
)


@pytest.fixture
def run(tiny, monkeypatch) -> GanRun:
    monkeypatch.setitem(GANS, "sketch", Sketch)
    monkeypatch.setitem(ADVERSARIAL, "hinge", HINGE)
    return train_gan(tiny("network={name: sketch, width: 8}"), "test")


def test_it_trains_and_keeps_earlier_tasks(run):
    assert run.trained == ["discs", "checks"]
    early, late = (run.sample("discs", 3, seed=0, generator=run.generator(after)) for after in (0, 1))
    assert torch.equal(early, late)
    assert early.shape == (3, 3, 32, 32)
    assert not torch.equal(early, run.sample("checks", 3, seed=0, generator=run.generator(1)))


def test_it_is_read_back_measured_exported_and_counted(run, tmp_path):
    again = open_run(run.folder.path, "gan")
    assert "Sketch, sizes [32]" in again.describe()
    assert again.experiment.network == Sketch(width=8)
    RunScorer(again, load_extractor("random"), 8, tmp_path).score(1)
    metrics = {score.metric for score in read_scores(run.folder.scores)}
    assert metrics >= {"FD-random", "KID-random", "growth"}
    export_generator(again, "checks", tmp_path / "checks.safetensors")
    z = torch.randn(2, 6)
    wanted = run.generator(1)
    with torch.no_grad():
        from eftgan import using_task

        with using_task(wanted, "checks"):
            torch.testing.assert_close(load_generator(tmp_path / "checks.safetensors")(z)[-1], wanted(z)[-1])
