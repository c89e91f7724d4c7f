"""Chains of layers are told apart from networks that are more than that."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from eftgan.adapters.chains import chain_of, layers_before, resized
from eftgan.errors import UserError
from eftgan.models.classifiers import build_classifier


def test_a_chain_names_its_layers_their_norms_and_how_many_pixels_were_flattened():
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5),
        nn.Dropout(), nn.Linear(5, 2),
    )  # fmt: skip
    found = [(link.name, link.positions, link.norm) for link in chain_of(network, "test")]
    assert found == [("0", 1, "1"), ("5", 9, None), ("7", 1, None)]
    assert list(layers_before(network).values()) == [None, network[0], network[5]]


@pytest.mark.parametrize(("name", "layers"), [("lenet_apd", 5), ("vgg16_bn", 14), ("vgg16_tiny", 11), ("alexnet", 8)])
def test_the_chains_among_the_classifiers_are_known(name, layers):
    with torch.device("meta"):
        network = build_classifier(name, 10)
    links = chain_of(network, "test")
    assert len(links) == layers
    assert links[-1].layer is network.head


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 2)), "test; Sequential has 0 "),
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), "test; Sequential has 1 "),
        (nn.Sequential(spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 2)), "test; Sequential has 0 "),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 2)), "test; Sequential has 1 "),
    ],
)
def test_what_ties_channels_together_is_no_chain(network, message):
    with pytest.raises(UserError, match=message):
        chain_of(network, "test")


def test_a_layer_of_another_size_works_as_the_one_that_it_is_made_from():
    conv = resized(nn.Conv2d(3, 8, 5, stride=2, padding=2, padding_mode="reflect", bias=False), 4, 6)
    assert conv(torch.ones(1, 4, 8, 8)).shape == (1, 6, 4, 4)
    assert (conv.padding_mode, conv.bias) == ("reflect", None)
    same = nn.Linear(3, 2)
    assert torch.equal(resized(same, 3, 2).weight, same.weight)
