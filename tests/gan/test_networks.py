"""A base that is not trained here: weights of one of our runs, or of a published checkpoint, frozen from the start."""

import pytest
import torch

from eftgan.adapters import shared_state
from eftgan.config import build
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.gan.networks import build_networks
from eftgan.models.gans import StackGan
from eftgan.models.gans.reference import _reference_name
from eftgan.names import GENERATOR
from eftgan.tensors import read_tensors, tensors_digest

PRETRAINED = "method={name: eft, base: pretrained}"
WHOLE = "method={name: eft, base: pretrained, discriminator: full}"
OTHER_TASK = "tasks=[{name: stripes, data: 'shapes:stripes', limit: 24}]"


def published(path, role: str = GENERATOR) -> dict[str, torch.Tensor]:
    """A checkpoint with the names of the public StackGAN-v2 code, for the tests' tiny networks."""
    family = build(StackGan, {"stages": 1, "base_size": 32, "ngf": 4, "ndf": 4, "z_dim": 8})
    network = {GENERATOR: family.generator(), **family.discriminators()}[role]
    state = {
        _reference_name(key, network): torch.randn_like(t.float()).to(t) for key, t in network.state_dict().items()
    }
    torch.save({f"module.{key}": tensor for key, tensor in state.items()}, path)
    return {key: state[_reference_name(key, network)] for key in network.state_dict()}


def test_the_shared_weights_of_a_run_serve_as_a_frozen_base(tiny):
    first = train_gan(tiny(out="first"), "test")
    run = train_gan(tiny(PRETRAINED, OTHER_TASK, f"base_weights={first.folder.path}", "seed=3", out="second"), "test")
    theirs, ours = (read_tensors(each.folder.shared)[0] for each in (first, run))
    assert tensors_digest(theirs) == tensors_digest(ours)
    assert run.trained == ["stripes"]


def test_a_published_generator_is_frozen_from_the_first_task_on(tiny, tmp_path):
    weights = published(tmp_path / "netG.pth")
    run = train_gan(tiny(WHOLE, f"base_weights={tmp_path / 'netG.pth'}"), "test")
    shared = shared_state(run.generator(1))
    convolutions = [key for key in weights if key.endswith("weight") and weights[key].dim() == 4]
    assert len(convolutions) == 4
    for key in convolutions:
        assert torch.equal(shared[key.replace(".weight", ".layer.weight")], weights[key]), key
    norm = run.generator(1).stem[1]
    assert torch.equal(norm.layer.running_mean, weights["stem.1.running_mean"])  # what the first task starts from


def test_every_network_that_would_be_frozen_needs_weights(tiny, tmp_path):
    published(tmp_path / "netG.pth")
    published(tmp_path / "netD.pth", "discriminator32")
    with pytest.raises(UserError, match=r"nothing for discriminator32, which .* would freeze"):
        build_networks(tiny(PRETRAINED, f"base_weights={tmp_path / 'netG.pth'}"))
    both = f"base_weights={{generator: {tmp_path / 'netG.pth'}, discriminator32: {tmp_path / 'netD.pth'}}}"
    assert set(build_networks(tiny(PRETRAINED, both))) == {GENERATOR, "discriminator32"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((PRETRAINED,), "belong together"),
        (("base_weights=x.pth",), "belong together"),
        ((WHOLE, "base_weights=nowhere.pth"), "no weights at nowhere.pth"),
        ((WHOLE, "base_weights={generater: x.pth}"), r"no network 'generater'; there are: generator, discriminator32"),
    ],
)
def test_a_base_that_cannot_be_loaded_is_refused(tiny, words, message):
    with pytest.raises(UserError, match=message):
        build_networks(tiny(*words))


def test_a_checkpoint_of_another_layout_is_refused_by_name(tiny, tmp_path):
    published(tmp_path / "netG.pth")
    with pytest.raises(UserError, match=r"netG\.pth does not fit the generator of StackGAN-v2, .*another shape"):
        build_networks(tiny(WHOLE, f"base_weights={tmp_path / 'netG.pth'}", "network.ngf=8"))
    torch.save({"some.weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(UserError, match=r"other\.pth does not fit .*these reference weights lack"):
        build_networks(tiny(WHOLE, f"base_weights={tmp_path / 'other.pth'}"))
