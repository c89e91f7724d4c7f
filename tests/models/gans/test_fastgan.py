"""FastGAN: sizes, shapes, gates that reach fine maps, and a start that the stream alone decides."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from eftgan.models.gans.fastgan import Discriminator, Excitation, FastGan, Generator, source_of

SMALL = FastGan(size=32, ngf=4, ndf=4, z_dim=6)


@pytest.mark.parametrize(
    ("size", "generator", "discriminator"),
    [(64, 28_211_072, 27_071_872), (256, 29_127_648, 28_224_448)],
)
def test_parameters_are_those_counted_by_hand(size, generator, discriminator):
    family = FastGan(size=size)
    with torch.device("meta"):
        networks = Generator(family), Discriminator(family)
    assert [sum(p.numel() for p in network.parameters()) for network in networks] == [generator, discriminator]


@pytest.mark.parametrize("size", [32, 64, 128])
def test_images_logits_and_redrawn_images_have_their_sizes(size):
    family = FastGan(size=size, ngf=2, ndf=2, z_dim=5)
    (images,) = family.generator()(torch.randn(2, 5))
    assert images.shape == (2, 3, size, size)
    (discriminator,) = family.discriminators().values()
    assert discriminator(images).shape == (2,)
    logits, drawn = discriminator(images, reconstruct=True)
    assert logits.shape == (2,)
    assert drawn.shape == (2, 3, size // 2, size // 2)


@pytest.mark.parametrize(
    ("size", "sources"),
    [(32, {32: 4}), (64, {64: 4}), (128, {64: 4, 128: 8}), (256, {64: 4, 128: 8, 256: 16})],
)
def test_fine_maps_are_gated_by_the_published_coarse_ones(size, sources):
    assert {
        side: source for side in (8, 16, 32, 64, 128, 256) if side <= size and (source := source_of(side, size))
    } == sources


def test_a_gate_multiplies_the_channels_of_the_fine_map():
    gate = Excitation(2, 3, normed=False)
    nn.init.zeros_(gate.gate[3].weight)  # sigmoid(0) = 1/2
    fine = torch.randn(2, 3, 8, 8)
    assert torch.equal(gate(torch.randn(2, 2, 4, 4), fine), fine / 2)


def test_the_first_weights_and_norms_follow_from_the_stream_alone():
    first, second = (SMALL.generator() for _ in range(2))
    for network in (first, second):
        SMALL.initialise(network, torch.Generator().manual_seed(3))
    states = first.state_dict(), second.state_dict()
    assert any(key.endswith("._u") for key in states[0])
    assert all(torch.equal(tensor, states[1][key]) for key, tensor in states[0].items())
    weight = first.eval().image[0].weight
    assert torch.linalg.matrix_norm(weight.flatten(1), 2).item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("which", "counts"), [("both", (True, True)), ("discriminator", (False, True)), ("none", (False, False))]
)
def test_spectral_norms_are_where_they_are_asked_for(which, counts):
    family = FastGan(size=32, ngf=2, ndf=2, z_dim=4, spectral_norm=which)
    networks = family.generator(), next(iter(family.discriminators().values()))
    found = tuple(any(parametrize.is_parametrized(module) for module in network.modules()) for network in networks)
    assert found == counts


@pytest.mark.parametrize(
    ("keys", "message"), [({"size": 16}, "size must be"), ({"size": 256, "ngf": 3}, "even"), ({"ndf": 0}, "at least 1")]
)
def test_shapes_that_cannot_be_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        FastGan(**keys)
