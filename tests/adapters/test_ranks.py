"""Ranks that a layer cannot use: capped where tasks are new. Tasks that an earlier version wrote keep their form."""

import pytest
import torch
from adapter_tools import output_of, randomise
from torch import Tensor, nn

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    at_strength,
    insert_adapters,
    load_task,
    load_task_file,
    mixed_network,
    save_task,
    task_state,
)
from eftgan.adapters.layout import restore_layout, task_layout
from eftgan.adapters.transforms.groups import widened
from eftgan.errors import UserError

OPTIONS = {"adafm": {"rank": 9}, "lora": {"rank": 40}, "llora": {"rank": 9}, "left": {"rank": 9}}


def to_an_image(kind: str, rank: int | None = None, task: str = "") -> nn.Module:
    """A convolution from 8 channels to 3, as a generator ends with, and a linear layer behind it."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(8, 3, 3, padding=1), nn.ReLU(), nn.Linear(4, 5))
    insert_adapters(network, AdapterConfig(kind=kind, options=OPTIONS[kind] if rank is None else {"rank": rank}))
    if task:
        add_task(network, task)
    return network


def uncapped(kind: str) -> nn.Module:
    """With a task as earlier versions made it: the rank that was asked for in every layer, no bias at a convolution."""
    network = to_an_image(kind, task="old")
    for layer in (0, 2):
        transform = network[layer].tasks["t001"]
        transform.by_taps = True  # of left: linear layers had the form of convolutions
        transform.make_factors(transform.asked)
    if kind != "adafm":
        network[0].tasks["t001"].own_bias = None
    randomise(network)
    return network


X = torch.randn(2, 8, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("kind", "layer", "asked", "rank"),
    [
        ("lora", nn.Conv2d(8, 3, 3), 40, 3),  # 3 outputs
        ("lora", nn.Conv2d(1, 64, 3), 40, 9),  # 1 input of 9 taps
        ("lora", nn.Conv2d(8, 64, 3), 40, 40),
        ("llora", nn.Conv2d(8, 3, 3), 40, 3),
        ("llora", nn.Conv2d(8, 64, 3), 40, 8),
        ("left", nn.Conv2d(8, 3, 3), 40, 3),
        ("left", nn.ConvTranspose2d(64, 8, 4), 40, 8),
        ("left", nn.Linear(6, 5), 40, 5),
        ("adafm", nn.Conv2d(8, 8, 3), 3, 3),  # 3 (8 + 8) < 64
        ("adafm", nn.Conv2d(8, 8, 3), 4, 0),  # as many: the full form
        ("adafm", nn.Conv2d(8, 3, 3), 9, 0),
    ],
)
def test_a_layers_rank_is_no_larger_than_what_it_can_use(kind, layer, asked, rank):
    network = nn.Sequential(layer)
    insert_adapters(network, AdapterConfig(kind=kind, options={"rank": asked}))
    add_task(network, "one")
    transform = network[0].tasks["t001"]
    assert transform.describe() == {"kind": kind, "rank": rank}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_task_is_never_larger_for_a_rank_that_is_out_of_reach(kind):
    def size(rank: int) -> int:
        return sum(tensor.numel() for tensor in task_state(to_an_image(kind, rank, "one"), "one").values())

    assert size(1000) == size(100)
    if kind == "adafm":
        assert size(100) == size(0)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_task_file_of_an_earlier_version_is_read_as_it_was(kind, tmp_path):
    old = uncapped(kind)
    save_task(old, "old", tmp_path / "old.safetensors")
    fresh = to_an_image(kind)
    load_task_file(fresh, tmp_path / "old.safetensors")
    assert torch.equal(output_of(fresh, "old", X), output_of(old, "old", X))
    assert shapes(task_state(fresh, "old")) == shapes(task_state(old, "old"))
    add_task(fresh, "next")  # starts as the previous one, whose form it takes
    assert torch.equal(output_of(fresh, "next", X), output_of(old, "old", X))
    add_task(fresh, "new", "identity")
    assert shapes(task_state(fresh, "new")) == shapes(task_state(to_an_image(kind, task="one"), "one"))
    assert all(parameter.requires_grad for parameter in fresh[0].tasks.parameters())


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_network_state_of_an_earlier_version_is_read_as_it_was(kind):
    old, fresh = uncapped(kind), to_an_image(kind)
    restore_layout(fresh, task_layout(old))
    fresh.load_state_dict(widened(old.state_dict(), fresh.state_dict()))  # as a run that starts from another does
    assert torch.equal(output_of(fresh, "old", X), output_of(old, "old", X))
    capped = to_an_image(kind, task="old")
    fresh.load_state_dict(capped.state_dict())  # and back
    assert torch.equal(output_of(fresh, "old", X), output_of(capped, "old", X))


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_task_of_an_earlier_version_has_strengths(kind):
    old = uncapped(kind)
    base, half, task = (mixed_network(old, at_strength({"old": 1.0}, share))(X) for share in (0.0, 0.5, 1.0))
    assert torch.allclose(base, output_of(old, None, X), atol=1e-6)
    assert torch.allclose(task, output_of(old, "old", X), atol=1e-5)
    assert not torch.allclose(half, base, atol=1e-2)
    add_task(old, "new", "identity")
    with pytest.raises(UserError, match="transforms or heads of other sizes cannot be mixed: '0"):
        mixed_network(old, {"old": 0.5, "new": 0.5})


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_task_of_another_rank_is_refused(kind):
    other = to_an_image(kind, 1, "other")
    with pytest.raises(UserError, match="task 'other' does not fit this model: tensor '0"):
        load_task(to_an_image(kind), "other", task_state(other, "other"))


def shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(tensor.shape) for key, tensor in state.items()}
