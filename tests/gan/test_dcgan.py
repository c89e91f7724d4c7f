"""DCGAN as a family, and a generator that others trained as the frozen base of new collections."""

import pytest
import torch

from eftgan import load_generator
from eftgan.adapters import BASE, fingerprint, using_task
from eftgan.commands import main
from eftgan.errors import UserError
from eftgan.evaluation.features import load_extractor
from eftgan.gan.export import export_generator
from eftgan.gan.kind import train_gan
from eftgan.gan.latent import network_of
from eftgan.gan.networks import build_networks
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.models.gans import Dcgan
from eftgan.models.weights import read_weights
from eftgan.scores import read_scores

NETWORK = "network={name: dcgan, size: 32, ngf: 4, ndf: 4, z_dim: 6}"
PRETRAINED = "method={name: eft, base: pretrained, discriminator: full}"
SHORT = "training.steps=3"


def drawn(run: GanRun, task: str | None, after: int) -> torch.Tensor:
    generator, z = run.generator(after), torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), using_task(generator, task):
        return generator(z)[-1]


@pytest.mark.parametrize("adapters", ["{a: 2, b: 2}", "{kind: lora, options: {rank: 2}}"])
def test_it_trains_keeps_earlier_tasks_samples_scores_and_exports(tiny, tmp_path, adapters):
    run = train_gan(tiny(NETWORK, f"adapters={adapters}", SHORT), "test")
    assert run.trained == ["discs", "checks"]
    assert torch.equal(drawn(run, "discs", 0), drawn(run, "discs", 1))
    assert not torch.equal(drawn(run, "discs", 1), drawn(run, "checks", 1))
    assert run.sample("checks", 2, seed=0, generator=run.generator(1)).shape == (2, 3, 32, 32)
    RunScorer(run, load_extractor("random"), 8, tmp_path).score(1)
    assert "FD-random" in {score.metric for score in read_scores(run.folder.scores)}
    export_generator(run, "checks", tmp_path / "checks.safetensors")
    z = torch.randn(2, 6)
    generator = run.generator(1)
    with torch.no_grad(), using_task(generator, "checks"):
        torch.testing.assert_close(load_generator(tmp_path / "checks.safetensors")(z)[-1], generator(z)[-1])


@pytest.fixture
def foreign(tmp_path) -> tuple[str, torch.Tensor]:
    """A generator as others publish them, with names of their own, and what it draws."""
    family = Dcgan(size=32, ngf=4, z_dim=6)
    network = family.generator()
    family.initialise(network, torch.Generator().manual_seed(5))
    network.train()(torch.randn(16, 6))  # running statistics of its own
    torch.save({f"netG.{key}": tensor for key, tensor in network.state_dict().items()}, tmp_path / "faces.pth")
    with torch.no_grad():
        images = network.eval()(torch.randn(3, 6, generator=torch.Generator().manual_seed(2)))[-1]
    return str(tmp_path / "faces.pth"), images


def test_a_foreign_generator_learns_collections_and_still_draws_the_same_to_the_bit(tiny, foreign):
    path, images = foreign
    experiment = tiny(NETWORK, PRETRAINED, f"base_weights={path}", SHORT)
    before = fingerprint(build_networks(experiment)["generator"])
    run = train_gan(experiment, "test")
    assert fingerprint(run.generator(1)) == before
    assert torch.equal(drawn(run, None, 1), images)
    for task in ("discs", "checks"):
        assert not torch.equal(drawn(run, task, 1), images)
    z = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    base = network_of(run, run.generator(1), {BASE: 1.0})(z)[-1]
    torch.testing.assert_close(base, images)  # merged with its own normalisation: the same up to rounding


def test_the_only_state_dict_inside_a_checkpoint_is_found(tmp_path):
    weights = {"main.0.weight": torch.ones(2)}
    torch.save({"epoch": 3, "netG_state_dict": weights}, tmp_path / "one.tar")
    assert read_weights(tmp_path / "one.tar").keys() == weights.keys()
    torch.save({"netG": weights, "netD": weights}, tmp_path / "two.tar")
    with pytest.raises(UserError, match=r"two.tar holds several state dicts \(netG, netD\)"):
        read_weights(tmp_path / "two.tar")
    torch.save({"epoch": 3}, tmp_path / "none.tar")
    with pytest.raises(UserError, match=r"none.tar holds no state dict"):
        read_weights(tmp_path / "none.tar")


def test_a_checkpoint_of_another_layout_is_refused_in_one_line(tiny, foreign):
    words = NETWORK, PRETRAINED, f"base_weights={foreign[0]}"
    with pytest.raises(UserError, match=r"faces.pth does not fit the generator of DCGAN, .*netG.main.0.weight"):
        build_networks(tiny(*words, "network.ngf=8"))


def test_a_kind_that_fits_no_layer_of_the_generator_is_refused_in_one_line(tiny, capsys, tmp_path):
    words = ["network={name: fastgan, size: 32, ngf: 4, ndf: 4, z_dim: 6}", "adapters={kind: lora}"]
    with pytest.raises(UserError, match=r"kind: lora has no layer of FastGAN's generator .* weight is computed"):
        build_networks(tiny(*words))
    with pytest.raises(SystemExit) as stopped:
        main(["train", "gan", "--config", "shapes", f"out={tmp_path / 'x'}", *words])
    assert stopped.value.code == 2
    assert "adapters.kind: lora" in capsys.readouterr().err
