"""The frozen copy that distillation, alignment and less-forgetting learning look back to."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters, task_names, using_task
from eftgan.methods import METHODS
from eftgan.methods.predecessor import Predecessor
from eftgan.names import CLASSIFIER, GENERATOR

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(*tasks: str) -> nn.Module:
    """A convolution with its normalisation and a head; the tasks own both, but share the transforms."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    insert_adapters(model, AdapterConfig(2, 0, heads=("3",)))
    for task in tasks:
        add_task(model, task, share={"transforms"})
    return model


def test_it_is_frozen_in_eval_mode_and_stays_where_it_was():
    model, before = network("a"), Predecessor()
    assert not before
    assert before.state_dict() == {}
    with pytest.raises(RuntimeError, match="no predecessor"):
        before.network(X)
    before.take(model.train())
    answer = before.network(X)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
        model(X)  # moves running statistics
    assert torch.equal(before.network(X), answer)
    assert not any(module.training for module in before.network.modules())
    assert not any(parameter.requires_grad for parameter in before.network.parameters())
    before.drop()
    assert not before


def test_it_is_loaded_beside_a_network_that_has_a_further_task():
    early = Predecessor()
    early.take(network("a", "b"))
    later = network("a", "b", "c")
    with torch.no_grad():
        for parameter in later.parameters():
            parameter.mul_(2.0)
    again = Predecessor()
    again.load(early.state_dict(), later)
    assert task_names(again.network) == ["a", "b"]
    assert task_names(later) == ["a", "b", "c"]
    for task in ("a", "b"):
        with using_task(again.network, task) as ours, using_task(early.network, task) as theirs:
            assert torch.equal(ours(X), theirs(X))
    again.load({}, later)
    assert not again


@pytest.mark.parametrize(("name", "role", "known"), [("lwf", CLASSIFIER, "abc"), ("mergan", GENERATOR, "ab")])
def test_states_keep_the_names_of_the_network_and_those_saved_before_are_continued(name, role, known):
    """LwF copies the network when it has grown by the task in training, MeRGAN when the task before has ended."""
    saved = network(*known).state_dict()
    method = METHODS[name]()
    method.load_state_dict(saved, {role: network("a", "b", "c")})
    again = method.state_dict()
    assert again.keys() == saved.keys()
    assert all(torch.equal(again[key], saved[key]) for key in saved)
