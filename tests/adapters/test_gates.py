"""Gates: where they stand, that they are neutral, storable and mergeable, whatever their kind."""

import pytest
import torch
from adapter_tools import images, output_of, randomise, small_cnn, train
from torch import nn

from eftgan.adapters import (
    AdapterConfig,
    TaskBank,
    Together,
    add_task,
    describe_adapters,
    insert_adapters,
    load_shared,
    load_task_file,
    merge_task,
    mergeable,
    save_task,
    select_task,
    shared_state,
    task_state,
)
from eftgan.adapters.gates import GATES, ChannelGate, Gate
from eftgan.adapters.layout import restore_layout, task_layout
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth


def adapted(kind: str, **options) -> nn.Module:
    network = small_cnn()
    insert_adapters(network, AdapterConfig(**{"heads": ("7",), **options}, gate=kind))
    return network


@pytest.fixture(params=list(GATES))
def kind(request) -> str:
    torch.manual_seed(0)
    return request.param


def gates_of(network: nn.Module) -> dict[str, TaskBank]:
    """By name, the banks that have a gate for every task."""
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, TaskBank) and any(isinstance(task, Gate) for task in module.tasks.values())
    }


@pytest.mark.parametrize("parts", [("transforms", "norms", "heads"), ("norms", "heads"), ("heads",)])
def test_a_gate_stands_behind_the_norm_or_the_layer_with_the_banks_of_both_inside(kind, parts):
    network = small_cnn()
    insertion = insert_adapters(network, AdapterConfig(parts=parts, heads=("7",), gate=kind))
    on_linear = ["6"] if GATES[kind].on_linear else []
    assert insertion.gates == ["1", "3", *on_linear]
    add_task(network, "one")
    assert list(gates_of(network)) == insertion.gates
    assert isinstance(network[1].layer, TaskBank) == ("norms" in parts)
    assert isinstance(network[3].layer, TaskBank) == ("transforms" in parts)
    assert network[1].num_features == 8
    assert network[3].out_channels == 12
    assert not isinstance(network[7].layer, TaskBank)


def test_excluded_layers_and_heads_have_no_gate(kind):
    network = small_cnn()
    assert insert_adapters(network, AdapterConfig(heads=("7",), exclude=("0", "6"), gate=kind)).gates == ["3"]


def test_a_new_task_starts_with_open_gates_and_draws_nothing(kind):
    plain, x = small_cnn(), images()
    network = adapted(kind)
    load_into = {key.replace(".layer", ""): tensor for key, tensor in shared_state(network).items()}
    plain.load_state_dict(load_into)
    with torch.no_grad():
        before = plain.eval()(x)
    drawn = torch.get_rng_state()
    add_task(network, "one")
    assert torch.equal(output_of(network, "one", x), before)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.equal(output_of(network, None, x), before)


def two_tasks(kind: str, **options) -> nn.Module:
    network = adapted(kind, **options)
    for task in ("one", "two"):
        add_task(network, task, "random")
    randomise(network)
    return network


def test_a_gate_learns_and_leaves_other_tasks_alone(kind):
    network, x = two_tasks(kind), images()
    one = {key: tensor.clone() for key, tensor in task_state(network, "one").items()}
    shared = {key: tensor.clone() for key, tensor in shared_state(network).items()}
    answer = output_of(network, "one", x)
    train(network, "two", x)
    for bank in gates_of(network).values():
        assert all(p.grad is not None and bool(p.grad.any()) for p in bank.tasks["t002"].parameters())
    assert all(torch.equal(tensor, one[key]) for key, tensor in task_state(network, "one").items())
    assert all(torch.equal(tensor, shared[key]) for key, tensor in shared_state(network).items())
    assert torch.equal(output_of(network, "one", x), answer)


def test_gates_come_back_from_a_file_and_from_a_layout(kind, tmp_path):
    network, x = two_tasks(kind), images()
    save_task(network, "two", tmp_path / "two.safetensors")
    fresh = adapted(kind)
    load_shared(fresh, shared_state(network))
    load_task_file(fresh, tmp_path / "two.safetensors")
    assert torch.equal(output_of(fresh, "two", x), output_of(network, "two", x))
    grown = adapted(kind)
    restore_layout(grown, task_layout(network))
    grown.load_state_dict(network.state_dict())
    assert torch.equal(output_of(grown, "one", x), output_of(network, "one", x))
    assert describe_adapters(network)["gate"] == kind


@pytest.mark.parametrize("options", [{}, {"parts": ("norms", "heads")}, {"parts": ("heads",)}, {"mode": "parallel"}])
def test_merged_and_side_by_side_tasks_answer_as_the_network_does(kind, options):
    network, x = two_tasks(kind, **options).double(), images().double()
    alone = [output_of(network, task, x) for task in ("one", "two")]
    assert mergeable(network, "two")
    merged = merge_task(network, "two")
    assert torch.allclose(merged(x), alone[1], rtol=0, atol=1e-9)
    assert not any(isinstance(module, TaskBank | nn.BatchNorm2d) for module in merged.modules())
    together = Together(network, ["one", "two"])
    for answer, expected in zip(together(x), alone, strict=True):
        assert torch.allclose(answer, expected, rtol=0, atol=1e-9)
    mixed = together.mixed(x, torch.tensor([1, 0, 0, 1]))
    expected = torch.stack([alone[1][0], alone[0][1], alone[0][2], alone[1][3]])
    assert torch.allclose(mixed, expected, rtol=0, atol=1e-9)
    select_task(network, ("two", "one"))
    with torch.no_grad():
        chunks = network.eval()(x)
    assert torch.allclose(chunks, torch.cat([alone[1][:2], alone[0][2:]]), rtol=0, atol=1e-9)


def test_the_growth_of_gates_counts_among_the_transforms(kind):
    network = small_cnn()
    insert_adapters(network, AdapterConfig(parts=("norms", "heads"), heads=("7",), gate=kind))
    add_task(network, "one")
    found, gates = growth(network, (3, 8, 8)), gates_of(network)
    assert [(layer.name, layer.outputs) for layer in found.layers][:2] == [("1", 8), ("3", 12)]
    expected = sum(gate.kept_parameters() for bank in gates.values() for gate in bank.tasks.values())
    assert found.adapter_parameters == expected
    assert found.flops_task > found.flops_base


def test_shared_weights_that_are_put_back_leave_the_gates_of_tasks_alone(kind):
    network = adapted(kind)
    add_task(network, "first")
    for module in network.modules():
        if isinstance(module, Gate):
            module.reset_parameters()
            module.finish()
    before = {key: tensor.clone() for key, tensor in task_state(network, "first").items()}
    load_shared(network, {key: tensor + 1 for key, tensor in shared_state(network).items()})
    after = task_state(network, "first")
    assert list(before) == list(after)
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_an_unknown_gate_is_refused():
    with pytest.raises(UserError, match="no gates of kind 'door'; there are: channel"):
        AdapterConfig(gate="door")


def test_a_channel_gate_is_the_sigmoid_of_the_normalised_mean():
    gate = ChannelGate(1, 2).eval()
    gate.reset_parameters()
    with torch.no_grad():
        gate.w.fill_(0.5)
        gate.norm.eps = 0.0
        out = gate(torch.full((1, 1, 3, 3), 2.0))  # the mean is 2, so g = sigmoid(1)
    assert torch.allclose(out, torch.full((1, 1, 3, 3), 1.4621), atol=1e-4)


def test_a_channel_gate_needs_two_samples_to_train():
    gate = ChannelGate(3, 2)
    with pytest.raises(UserError, match="at least 2 samples"):
        gate(torch.zeros(1, 3, 4, 4))
    assert gate(torch.zeros(2, 3, 4, 4)).shape == (2, 3, 4, 4)
