"""All tasks in one network, the task a number that comes with the input."""

import pytest
import torch
from adapter_tools import randomise
from torch import nn

from eftgan.adapters import TRANSFORMS, AdapterConfig, add_task, insert_adapters, task_names, using_task
from eftgan.adapters.by_number import ByNumber
from eftgan.errors import UserError

FORMS = [{"kind": kind} for kind in TRANSFORMS] + [{"mode": "parallel"}, {"gate": "channel"}, {"gate": "unit"}]


def network_with_tasks(heads: tuple[int, ...], **form: str) -> nn.Module:
    """A small classifier; each task has transforms, normalisation and a head of its own."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, heads[0]),
    )  # fmt: skip
    insert_adapters(net, AdapterConfig(a=4, b=4, heads=("5",), **form))
    for number, size in enumerate(heads):
        add_task(net, f"t{number}", head_size=size)
    randomise(net)
    return net.eval()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_number_chooses_the_task_and_narrow_heads_are_filled_up(form):
    net = network_with_tasks((3, 5, 2), **form)
    x, chosen = torch.randn(4, 3, 8, 8), ByNumber(net, task_names(net))
    for number, width in enumerate((3, 5, 2)):
        with torch.no_grad(), using_task(net, f"t{number}"):
            wanted = net(x)
        found = chosen(x, torch.tensor(number))
        assert found.shape == (4, 5)
        torch.testing.assert_close(found[:, :width], wanted, atol=1e-5, rtol=0)
        assert torch.equal(found[:, width:], torch.full((4, 5 - width), -torch.inf))


def test_shared_weights_are_held_once_however_many_tasks_there_are():
    net = network_with_tasks((2, 2, 2))
    states = [ByNumber(net, task_names(net)[:count]).state_dict() for count in (1, 2, 3)]
    one, two, three = (sum(tensor.numel() for tensor in state.values()) for state in states)
    assert three - two == two - one
    assert one - (two - one) == sum(tensor.numel() for tensor in net[0].layer.parameters())


def test_tasks_of_different_shapes_are_refused():
    net = network_with_tasks((2, 2))
    net[5].tasks["t002"] = nn.Linear(8, 2, bias=False)
    with pytest.raises(UserError, match="differ in the shapes of their heads"):
        ByNumber(net, task_names(net))


def test_no_tasks_are_refused():
    with pytest.raises(UserError, match="no tasks"):
        ByNumber(network_with_tasks((2,)), [])
