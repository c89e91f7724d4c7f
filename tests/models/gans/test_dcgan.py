"""DCGAN: published sizes, shapes, and checkpoints of the same layers under any names."""

import pytest
import torch
from torch import nn

from eftgan.errors import UserError
from eftgan.models.gans.dcgan import Dcgan, Discriminator, Generator
from eftgan.models.gans.foreign import same_layers

SMALL = Dcgan(size=32, ngf=4, ndf=4, z_dim=6)


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_parameters_are_those_of_pytorchs_example():
    with torch.device("meta"):
        assert parameters(Generator(Dcgan())) == 3_576_704
        assert parameters(Discriminator(Dcgan())) == 2_765_568


@pytest.mark.parametrize("size", [32, 64, 128])
def test_images_have_the_size_and_discriminators_give_a_logit_each(size):
    family = Dcgan(size=size, ngf=2, ndf=2, z_dim=5)
    (images,) = family.generator()(torch.randn(2, 5))
    assert images.shape == (2, 3, size, size)
    (discriminator,) = family.discriminators().values()
    assert discriminator(images).shape == (2,)
    with pytest.raises(RuntimeError):
        discriminator(torch.zeros(2, 3, 2 * size, 2 * size))


def test_layers_have_the_names_of_pytorchs_example():
    with torch.device("meta"):
        keys = [key for key in Generator(Dcgan()).state_dict() if key.endswith("weight")]
    assert keys == [f"main.{index}.weight" for index in (0, 1, 3, 4, 6, 7, 9, 10, 12)]


def test_the_first_weights_follow_from_the_stream_alone():
    first, second = (SMALL.generator() for _ in range(2))
    for network in (first, second):
        SMALL.initialise(network, torch.Generator().manual_seed(3))
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), second.parameters(), strict=True))
    assert 0.015 < first.main[0].weight.std() < 0.025


def test_a_checkpoint_of_the_same_layers_loads_whatever_their_names():
    theirs, ours = SMALL.generator(), SMALL.generator()
    renamed = {f"module.net.block{key}": tensor for key, tensor in theirs.state_dict().items()}
    without_counters = {key: tensor for key, tensor in renamed.items() if not key.endswith("num_batches_tracked")}
    z = torch.randn(2, 6)
    for state in (renamed, without_counters, dict(reversed(theirs.state_dict().items()))):
        SMALL.load_published(ours, state)
        assert torch.equal(ours.eval()(z)[0], theirs.eval()(z)[0])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Dcgan(size=32, ngf=8, z_dim=6), r"main.0.weight \(6, 32, 4, 4\) stands where main.0.weight \(6, 16, 4, 4\)"),
        (Dcgan(size=64, ngf=4, z_dim=6), "stands where main.0.weight"),
    ],
)
def test_a_checkpoint_of_other_layers_is_refused_by_the_first_that_differs(other, message):
    with pytest.raises(UserError, match=message):
        same_layers(other.generator().state_dict(), SMALL.generator())


def test_one_tensor_too_few_or_of_another_kind_is_refused():
    state = dict(SMALL.generator().state_dict())
    short = {f"x.{key}": tensor for key, tensor in state.items() if not key.startswith("main.9")}
    with pytest.raises(UserError, match="it has 15 tensors where 16 are expected"):
        same_layers(short, SMALL.generator())
    swapped = {f"x.{key}".replace("bias", "scale"): tensor for key, tensor in state.items()}
    with pytest.raises(UserError, match=r"x.main.1.scale \(16,\) stands where main.1.bias"):
        same_layers(swapped, SMALL.generator())


@pytest.mark.parametrize(("keys", "message"), [({"size": 48}, "size must be"), ({"ngf": 0}, "at least 1")])
def test_shapes_that_cannot_be_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Dcgan(**keys)
