"""FastGAN as a family: spectral norms beside frozen weights, hinge loss, and the discriminator's reconstruction."""

import pytest
import torch

from eftgan import load_generator
from eftgan.adapters import using_task
from eftgan.evaluation.features import load_extractor
from eftgan.gan.export import export_generator
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.scores import read_scores
from eftgan.tensors import read_tensors

NETWORK = "network={name: fastgan, size: 32, ngf: 2, ndf: 2, z_dim: 6}"


def drawn(run: GanRun, task: str, after: int) -> torch.Tensor:
    generator, z = run.generator(after), torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), using_task(generator, task):
        return generator(z)[-1]


@pytest.mark.parametrize("discriminator", ["eft", pytest.param("full", marks=pytest.mark.slow)])
def test_it_trains_keeps_earlier_tasks_samples_scores_and_exports(tiny, tmp_path, discriminator):
    method = f"method={{name: eft, discriminator: {discriminator}}}"
    run = train_gan(tiny(NETWORK, method, "training.steps=3", "training.r1=0.05"), "test")
    assert run.trained == ["discs", "checks"]
    assert torch.equal(drawn(run, "discs", 0), drawn(run, "discs", 1))
    assert not torch.equal(drawn(run, "discs", 1), drawn(run, "checks", 1))
    RunScorer(run, load_extractor("random"), 8, tmp_path).score(1)
    assert "FD-random" in {score.metric for score in read_scores(run.folder.scores)}
    export_generator(run, "checks", tmp_path / "checks.safetensors")
    z, generator = torch.randn(2, 6), run.generator(1)
    with torch.no_grad(), using_task(generator, "checks"):
        torch.testing.assert_close(load_generator(tmp_path / "checks.safetensors")(z)[-1], generator(z)[-1])


def test_the_discriminator_learns_to_draw_what_it_saw(tiny):
    """Its drawing layers, which no logit depends on, move: they get a gradient from the reconstruction alone."""
    words = NETWORK, "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"
    states = []
    for steps in (1, 3):
        run = train_gan(tiny(*words, f"training.steps={steps}", out=f"run{steps}"), "test")
        states.append(read_tensors(run.folder.state_files()[-1])[0])
    moved = [key for key in states[0] if key.startswith("network/discriminator32/draw.") and key.endswith("original")]
    assert len(moved) == 2
    assert not any(torch.equal(states[0][key], states[1][key]) for key in moved)
