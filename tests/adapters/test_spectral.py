"""Spectral normalisation: its power iteration follows a weight that trains, and rests beside one that is frozen."""

import copy
from collections.abc import Callable

import pytest
import torch
from adapter_tools import images, output_of, train
from torch import nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters, merge_task, shared_state

FORMS = {"parametrization": nn.utils.parametrizations.spectral_norm, "hook": nn.utils.spectral_norm}


@pytest.fixture(params=FORMS)
def network(request) -> nn.Module:
    torch.manual_seed(0)
    normalised: Callable[[nn.Module], nn.Module] = FORMS[request.param]
    layers = normalised(nn.Conv2d(3, 6, 3, padding=1)), nn.BatchNorm2d(6), nn.ReLU(), normalised(nn.Conv2d(6, 6, 3))
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(6 * 36, 2))
    insert_adapters(network, AdapterConfig(2, 2, heads=("5",), exclude=("3",)))
    add_task(network, "one")
    return network


def vectors(network: nn.Module) -> dict[str, torch.Tensor]:
    return {key: tensor.clone() for key, tensor in shared_state(network).items() if key.endswith(("_u", "_v"))}


def test_it_iterates_while_the_weights_train(network):
    before = vectors(network)
    assert len(before) == 4
    train(network, "one", images(), shared=True)
    after = vectors(network)
    assert not any(torch.equal(before[key], after[key]) for key in before)


def test_a_later_task_in_train_mode_leaves_frozen_weights_and_earlier_outputs_as_they_are(network):
    train(network, "one", images(), shared=True)
    theta = {key: tensor.clone() for key, tensor in shared_state(network).items()}
    early = output_of(network, "one", images(seed=3))
    add_task(network, "two")
    train(network, "two", images(seed=1))
    assert network.training
    assert all(torch.equal(tensor, theta[key]) for key, tensor in shared_state(network).items())
    assert torch.equal(output_of(network, "one", images(seed=3)), early)
    assert not torch.equal(output_of(network, "two", images(seed=3)), early)


def test_a_copy_rests_as_well(network):
    train(network, "one", images())
    twin = copy.deepcopy(network)
    before = vectors(twin)
    twin.train()(images())
    assert all(torch.equal(tensor, before[key]) for key, tensor in vectors(twin).items())


def test_a_parametrized_layer_still_merges_to_a_plain_one():
    torch.manual_seed(0)
    network = nn.Sequential(FORMS["parametrization"](nn.Conv2d(3, 4, 3)), nn.Flatten())
    insert_adapters(network, AdapterConfig(0, 4))
    add_task(network, "one", "random")
    merged = merge_task(network, "one")
    assert type(merged[0]) is nn.Conv2d
    torch.testing.assert_close(merged(images()), output_of(network, "one", images()))
