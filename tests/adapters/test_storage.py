"""Task files: what they hold, and what is refused without a trace."""

from pathlib import Path

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    fingerprint,
    insert_adapters,
    load_shared,
    load_task,
    load_task_file,
    save_task,
    shared_state,
    task_names,
    task_state,
)
from eftgan.errors import UserError
from eftgan.tensors import tensors_digest


def adapted(seed: int = 0, **options) -> nn.Module:
    torch.manual_seed(seed)
    network = small_cnn().eval()
    insert_adapters(network, AdapterConfig(**({"a": 4, "b": 4, "heads": ("7",)} | options)))
    add_task(network, "cats")
    add_task(network, "birds")
    randomise(network, seed)
    return network


@pytest.fixture
def network() -> nn.Module:
    return adapted()


@pytest.fixture
def birds_file(tmp_path) -> Path:
    path = tmp_path / "birds.safetensors"
    save_task(adapted(), "birds", path)
    return path


def test_a_task_file_holds_the_task_and_says_what_it_is(network, birds_file):
    state = {f"network/{key}": tensor for key, tensor in task_state(network, "birds").items()}
    with safe_open(birds_file, framework="pt") as handle:
        assert set(handle.keys()) == set(state)
        assert handle.metadata() == {
            "format": "eftgan-task-2", "task": "birds", "kind": "task",
            "adapters": '{"kind": "eft", "mode": "serial", "a": "4", "b": "4"}',
            "bases": f'{{"network": "{fingerprint(network)}"}}',
            "digest": tensors_digest(state),
        }  # fmt: skip


def test_tasks_and_shared_weights_are_the_whole_model(network):
    tensors = [shared_state(network), task_state(network, "cats"), task_state(network, "birds")]
    assert sum(map(len, tensors)) == len(network.state_dict())


def test_the_fingerprint_sees_shared_weights_only(network):
    before = fingerprint(network)
    randomise(network, seed=5)
    add_task(network, "dogs")
    assert fingerprint(network) == before
    with torch.no_grad():
        network[0].layer.weight[0, 0, 0, 0] += 1e-6
    assert fingerprint(network) != before


def test_a_file_can_come_in_under_another_name(network, birds_file):
    assert load_task_file(network, birds_file, "sparrows") == "sparrows"
    assert task_names(network) == ["cats", "birds", "sparrows"]
    x = images()
    assert torch.equal(output_of(network, "sparrows", x), output_of(network, "birds", x))


def test_loading_draws_no_random_numbers_and_keeps_the_selection(network, birds_file):
    state = torch.get_rng_state()
    active = output_of(network, "birds", images())
    load_task_file(network, birds_file, "sparrows")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(network(images()), active)


def test_loading_over_a_task_keeps_its_parameters_as_objects(network):
    weight = network[0].tasks["t001"].spatial.weight
    load_task(network, "cats", task_state(network, "birds"))
    assert network[0].tasks["t001"].spatial.weight is weight
    assert torch.equal(output_of(network, "cats", images()), output_of(network, "birds", images()))


def test_loading_over_shared_parts_is_refused_unless_they_stay_the_same(network):
    add_task(network, "dogs", share=("transforms",))
    state = {key: tensor.clone() for key, tensor in task_state(network, "dogs").items()}
    state["1.weight"] += 1
    load_task(network, "dogs", state)
    assert torch.equal(task_state(network, "dogs")["1.weight"], state["1.weight"])
    before = digest(network)
    with pytest.raises(UserError, match="shares its transforms with birds"):
        load_task(network, "dogs", task_state(network, "cats"))
    assert digest(network) == before


def corrupt(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def altered(network: nn.Module, **changes) -> dict:
    state = {key: tensor.clone() for key, tensor in task_state(network, "birds").items()}
    state.update({key.replace("__", "."): value for key, value in changes.items()})
    return {key: value for key, value in state.items() if value is not None}


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda net, file: load_task_file(net, file), "'birds' exists already"),
        (lambda net, file: load_task_file(net, file, "a b"), "not usable"),
        (lambda net, file: load_task_file(net, file.with_name("none")), "no such file"),
        (lambda net, file: load_task_file(net, file.parent), "no such file"),
        (lambda net, file: load_task_file(net, corrupt(file, file.read_bytes()[:-40]), "x"), "not a whole"),
        (lambda net, file: load_task_file(net, corrupt(file, file.read_bytes()[:20]), "x"), "not a whole"),
        (lambda net, file: load_task_file(net, corrupt(file, b""), "x"), "not a whole"),
        (lambda net, file: load_task_file(net, corrupt(file, b"PK\x03\x04 a picture"), "x"), "not a whole"),
        (lambda net, file: load_task(net, "x", altered(net, **{"1__weight": None})), "'1.weight' is missing"),
        (lambda net, file: load_task(net, "x", altered(net, extra=torch.ones(1))), "no layer for tensor 'extra'"),
        (lambda net, file: load_task(net, "x", altered(net, **{"1__weight": torch.ones(3)})), r"shape \(3,\)"),
        (lambda net, file: load_task(net, "x", altered(net, **{"7__weight": torch.ones(2, 9)})), r"shape \(2, 9\)"),
        (lambda net, file: load_task(net, "x", altered(net, **{"7__weight": torch.tensor(1.0)})), "shape"),
        (lambda net, file: load_task(net, "cats", altered(net, **{"7__bias": torch.ones(9)})), r"shape \(9,\)"),
        (lambda net, file: load_shared(net, {}), "missing"),
        (lambda net, file: load_shared(net, net.state_dict()), "no layer for tensor"),
    ],
)
def test_what_does_not_fit_is_one_clear_error_and_changes_nothing(network, birds_file, load, message):
    before = digest(network)
    with pytest.raises(UserError, match=message):
        load(network, birds_file)
    assert digest(network) == before


def test_a_file_of_another_base_is_refused_with_both_fingerprints(birds_file):
    other = adapted(seed=1)
    before = digest(other)
    with pytest.raises(UserError, match=f"{fingerprint(adapted())}.*{fingerprint(other)}"):
        load_task_file(other, birds_file, "sparrows")
    assert digest(other) == before


def test_a_file_of_the_other_mode_is_refused(tmp_path):
    """Where input and output channels agree, serial and parallel tensors look alike."""

    def build(mode: str) -> nn.Module:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1))
        insert_adapters(network, AdapterConfig(2, 2, mode=mode))
        add_task(network, "cats")
        return network

    save_task(build("serial"), "cats", tmp_path / "cats.safetensors")
    network = build("parallel")
    before = digest(network)
    with pytest.raises(UserError, match="made for mode serial"):
        load_task_file(network, tmp_path / "cats.safetensors", "again")
    assert digest(network) == before


def test_other_safetensors_files_are_not_task_files(network, tmp_path):
    save_file({"x": torch.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="not a task file of this version"):
        load_task_file(network, tmp_path / "x.safetensors")
