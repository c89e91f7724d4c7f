"""One format for a task's file, whoever wrote it; the files of earlier versions are read as well."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn
from torch import Tensor, nn

from eftgan.adapters import (
    AdapterConfig,
    TaskFile,
    add_task,
    describe_adapters,
    fingerprint,
    insert_adapters,
    load_task_file,
    read_task_file,
    remove_task,
    task_state,
    write_task_file,
)
from eftgan.errors import UserError
from eftgan.tensors import tensors_digest, write_tensors


def adapted(seed: int, **options) -> nn.Module:
    torch.manual_seed(seed)
    network = small_cnn().eval()
    insert_adapters(network, AdapterConfig(**({"a": 4, "b": 4, "heads": ("7",)} | options)))
    add_task(network, "cats")
    randomise(network, seed)
    return network


@pytest.fixture
def networks() -> dict[str, nn.Module]:
    return {"generator": adapted(0), "discriminator64": adapted(1)}


def states_of(networks: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]]:
    return {role: task_state(network, "cats") for role, network in networks.items()}


def bases_of(networks: Mapping[str, nn.Module]) -> dict[str, str]:
    return {role: fingerprint(network) for role, network in networks.items()}


def same(given: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return given.keys() == other.keys() and all(torch.equal(tensor, other[key]) for key, tensor in given.items())


def check_loads_into_each(path: Path, networks: Mapping[str, nn.Module]) -> None:
    for network in networks.values():
        expected = output_of(network, "cats", images())
        remove_task(network, "cats")
        assert load_task_file(network, path) == "cats"
        assert torch.equal(output_of(network, "cats", images()), expected)


def test_a_file_of_several_networks_goes_round(networks, tmp_path):
    path, states, bases = tmp_path / "cats", states_of(networks), bases_of(networks)
    write_task_file(path, "cats", states, bases, {"steps": "12"}, adapters=describe_adapters(networks["generator"]))
    file = read_task_file(path)
    assert (file.task, file.kind, file.bases, file.facts) == ("cats", "task", bases, {"steps": "12"})
    assert file.adapters == {"kind": "eft", "mode": "serial", "a": "4", "b": "4"}
    assert all(same(file.states[role], states[role]) for role in networks)


def test_each_network_of_a_file_finds_its_own_part_by_its_base(networks, tmp_path):
    write_task_file(tmp_path / "cats", "cats", states_of(networks), bases_of(networks))
    check_loads_into_each(tmp_path / "cats", networks)


def test_a_file_that_training_wrote_before_is_read(networks, tmp_path):
    tensors = {f"{role}/{key}": t for role, state in states_of(networks).items() for key, t in state.items()}
    metadata = {
        "format": "eftgan-run-task-1", "task": "cats", "digest": tensors_digest(tensors), "kind": "task",
        "bases": json.dumps(bases_of(networks)),
    }  # fmt: skip
    write_tensors(tmp_path / "cats", tensors, metadata)
    assert read_task_file(tmp_path / "cats").bases == bases_of(networks)
    check_loads_into_each(tmp_path / "cats", networks)


def test_a_whole_network_that_training_wrote_before_is_read_but_not_added_to_a_model(networks, tmp_path):
    network = networks["generator"]
    tensors = {f"generator/{key}": tensor for key, tensor in network.state_dict().items()}
    metadata = {"format": "eftgan-run-task-1", "task": "cats", "kind": "full", "layout": '{"made": 1}'}
    write_tensors(tmp_path / "cats", tensors, metadata)
    file = read_task_file(tmp_path / "cats")
    assert (file.kind, file.bases, file.facts) == ("full", {}, {"layout": '{"made": 1}'})
    assert same(file.states["generator"], network.state_dict())
    before = digest(network)
    with pytest.raises(UserError, match="holds a whole network that was trained for task 'cats'"):
        load_task_file(network, tmp_path / "cats", "again")
    assert digest(network) == before


def test_a_whole_network_goes_round(networks, tmp_path):
    state = networks["generator"].state_dict()
    write_task_file(tmp_path / "cats", "cats", {"generator": state}, {}, {"layout": "{}"}, kind="full")
    file = read_task_file(tmp_path / "cats")
    assert (file.kind, file.facts) == ("full", {"layout": "{}"})
    assert same(file.states["generator"], state)


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_a_file_that_the_library_wrote_before_is_read(networks, tmp_path, mode):
    network = networks["generator"]
    metadata = {"format": "eftgan-task-1", "task": "cats", "a": "4", "b": "4", "mode": mode}
    write_tensors(tmp_path / "cats", task_state(network, "cats"), metadata | {"base": fingerprint(network)})
    assert read_task_file(tmp_path / "cats").adapters == {"kind": "eft", "mode": mode, "a": "4", "b": "4"}
    if mode == "serial":
        check_loads_into_each(tmp_path / "cats", {"generator": network})
    else:
        with pytest.raises(UserError, match="made for mode parallel, this model's adapters are serial"):
            load_task_file(network, tmp_path / "cats", "again")


def test_a_file_fits_where_group_sizes_have_the_same_effect(networks, tmp_path):
    network = networks["generator"]
    write_task_file(
        tmp_path / "cats", "cats", {"network": task_state(network, "cats")}, {"network": fingerprint(network)},
        adapters={"kind": "eft", "mode": "serial", "a": "5", "b": "4"},
    )  # fmt: skip
    assert load_task_file(network, tmp_path / "cats", "again") == "again"


def rewritten(path: Path, **changes: str | None) -> None:
    """The tensors of a file with other metadata."""
    file = read_task_file(path)
    tensors = {f"{role}/{key}": tensor for role, state in file.states.items() for key, tensor in state.items()}
    metadata = {
        "format": "eftgan-task-2", "task": file.task, "kind": file.kind, "bases": json.dumps(file.bases),
        "adapters": "{}", "digest": tensors_digest(tensors),
    }  # fmt: skip
    write_tensors(path, tensors, {key: value for key, value in (metadata | changes).items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digest": "0" * 64}, "does not match its digest"),
        ({"digest": None}, "does not match its digest"),
        ({"format": "eftgan-task-3"}, "not a task file of this version .format 'eftgan-task-3', not 'eftgan-task-2'"),
        ({"kind": "half"}, "metadata is damaged .*half"),
        ({"kind": None}, "metadata is damaged"),
        ({"task": None}, "metadata is damaged"),
        ({"bases": "nothing"}, "metadata is damaged"),
        ({"bases": "[1]"}, "metadata is damaged"),
        ({"adapters": "3"}, "metadata is damaged"),
        ({"bases": '{"generator": "abc", "discriminator64": "def"}'}, "its fingerprint is abc and def, this model's"),
        ({"bases": None}, "its fingerprint is missing"),
    ],
)
def test_a_damaged_or_foreign_file_is_one_clear_error(networks, tmp_path, changes, message):
    path, network = tmp_path / "cats", networks["generator"]
    write_task_file(path, "cats", states_of(networks), bases_of(networks))
    rewritten(path, **changes)
    before = digest(network)
    with pytest.raises(UserError, match=message):
        load_task_file(network, path, "again")
    assert digest(network) == before


def test_networks_with_the_same_base_are_not_guessed_between(networks, tmp_path):
    network = networks["generator"]
    state, base = task_state(network, "cats"), fingerprint(network)
    write_task_file(tmp_path / "cats", "cats", {"left": state, "right": state}, {"left": base, "right": base})
    with pytest.raises(UserError, match="left and right have the shared weights of this model"):
        load_task_file(network, tmp_path / "cats", "again")


def test_tensors_without_a_role_are_damage(tmp_path):
    tensors = {"0.weight": torch.ones(1)}
    metadata = {"format": "eftgan-task-2", "task": "cats", "kind": "task", "digest": tensors_digest(tensors)}
    write_tensors(tmp_path / "cats", tensors, metadata)
    with pytest.raises(UserError, match="weight' has no role"):
        read_task_file(tmp_path / "cats")


@pytest.mark.parametrize(
    ("states", "facts", "message"),
    [({"a/b": {}}, {}, "cannot be a role"), ({"": {}}, {}, "cannot be a role"), ({}, {"digest": "x"}, "digest")],
)
def test_names_that_would_not_come_back_are_refused(tmp_path, states, facts, message):
    with pytest.raises(ValueError, match=message):
        write_task_file(tmp_path / "cats", "cats", states, {}, facts)
    assert list(tmp_path.iterdir()) == []


def test_a_task_without_tensors_goes_round(tmp_path):
    write_task_file(tmp_path / "cats", "cats", {"network": {}}, {"network": "abc"})
    assert read_task_file(tmp_path / "cats") == TaskFile("cats", "task", {"network": {}}, {"network": "abc"})
