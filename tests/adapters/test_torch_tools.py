"""Adapted networks are ordinary modules: copied, moved, pickled, compiled, distributed like any other."""

import copy
import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn, train
from torch import nn
from torch.nn import SyncBatchNorm

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    fingerprint,
    insert_adapters,
    merge_task,
    registry_of,
    remove_task,
    select_task,
    shared_state,
    task_names,
    task_state,
)


def adapted(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    network = small_cnn().eval()
    insert_adapters(network, AdapterConfig(4, 4, heads=("7",)))
    add_task(network, "cats")
    add_task(network, "birds")
    randomise(network, seed)
    return network


def test_a_deepcopy_has_its_own_tasks_and_selection():
    network = adapted()
    twin = copy.deepcopy(network)
    before = digest(network)
    assert digest(twin) == before
    assert registry_of(twin).active_names == ("birds",)
    select_task(twin, ("cats", "birds"))
    train(twin, "cats", images(), shared=True)
    add_task(twin, "dogs")
    remove_task(twin, "birds")
    train_state = [p.requires_grad for p in network.parameters()]
    assert all(train_state)
    assert digest(network) == before


def test_a_pickled_network_comes_back():
    network, buffer = adapted(), io.BytesIO()
    torch.save(network, buffer)
    buffer.seek(0)
    back = torch.load(buffer, weights_only=False)
    assert digest(back) == digest(network)
    add_task(back, "dogs")
    assert task_names(network) == ["cats", "birds"]


def test_the_state_dict_goes_round():
    network, other = adapted(), adapted(seed=1)
    other.load_state_dict(network.state_dict())
    for task in ("cats", "birds", None):
        assert torch.equal(output_of(other, task, images()), output_of(network, task, images()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_number_types_work_and_new_tasks_follow(dtype, needs_number_type):
    needs_number_type(dtype)
    network, x = adapted().to(dtype), images().to(dtype)
    add_task(network, "dogs")
    load = {key: tensor.dtype for key, tensor in task_state(network, "dogs").items() if tensor.is_floating_point()}
    assert set(load.values()) == {dtype}
    assert torch.equal(output_of(network, "dogs", x), output_of(network, "dogs", x))
    expected = output_of(network, "cats", x)
    tolerance = {torch.float64: 1e-9, torch.bfloat16: 0.2, torch.float16: 0.03}[dtype]
    merged = merge_task(network, "cats")(x)
    assert merged.dtype == dtype
    assert torch.allclose(merged, expected, rtol=0, atol=tolerance * expected.abs().max().item())


def test_new_tasks_follow_the_device():
    network = small_cnn().to("meta")
    insert_adapters(network, AdapterConfig(4, 4, heads=("7",)))
    add_task(network, "cats")
    assert {tensor.device.type for tensor in task_state(network, "cats").values()} == {"meta"}


def test_the_training_mode_reaches_new_tasks():
    network = adapted().train()
    add_task(network, "dogs")
    assert all(module.training for module in network.modules())
    network.eval()
    add_task(network, "cows")
    assert not any(module.training for module in network.modules())


@pytest.mark.parametrize("before_insertion", [True, False])
def test_batchnorm_can_be_converted_to_sync_batchnorm(before_insertion):
    network = small_cnn()
    if before_insertion:
        network = SyncBatchNorm.convert_sync_batchnorm(network)
    insert_adapters(network, AdapterConfig(4, 4, heads=("7",)))
    add_task(network, "cats")
    train(network, "cats", images(), shared=True)
    expected = output_of(network, "cats", images())
    if not before_insertion:
        network = SyncBatchNorm.convert_sync_batchnorm(network)
    assert torch.equal(output_of(network, "cats", images()), expected)
    add_task(network, "birds")
    assert type(network[1].tasks["t002"]) is SyncBatchNorm
    train(network, "birds", images(seed=4))
    assert torch.equal(output_of(network, "cats", images()), expected)
    merged = merge_task(network, "cats")
    assert torch.allclose(merged(images()), expected, atol=1e-4)


def test_a_compiled_network_follows_the_task():
    network = adapted()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    x = images()
    for task in ("cats", "birds", None, "cats"):
        select_task(compiled, task)
        with torch.no_grad():
            assert torch.allclose(compiled(x), output_of(network, task, x), atol=1e-6)
    add_task(compiled, "dogs")
    with torch.no_grad():
        randomise(network, seed=7)
        assert torch.allclose(compiled(x), output_of(network, "dogs", x), atol=1e-6)


def test_a_compiled_network_trains_its_task():
    network = adapted()
    cats = output_of(network, "cats", images())
    compiled = torch.compile(network, backend="eager")
    birds = output_of(network, "birds", images())
    train(compiled, "birds", images(seed=2), steps=1)
    assert torch.equal(output_of(network, "cats", images()), cats)
    assert not torch.equal(output_of(network, "birds", images()), birds)


def test_wrappers_do_not_show_in_names_or_fingerprints():
    network = adapted()
    for wrapped in (torch.compile(network, backend="eager"), nn.DataParallel(network)):
        assert list(task_state(wrapped, "cats")) == list(task_state(network, "cats"))
        assert list(shared_state(wrapped)) == list(shared_state(network))
        assert fingerprint(wrapped) == fingerprint(network)
        assert type(merge_task(wrapped, "cats")) is nn.Sequential


def test_merging_does_not_touch_the_network_or_copy_its_other_tasks(monkeypatch):
    network = adapted()
    before = digest(network)
    copied = []
    original = nn.Parameter.__deepcopy__

    def spy(self, memo):
        copied.append(id(self))
        return original(self, memo)

    monkeypatch.setattr(nn.Parameter, "__deepcopy__", spy)
    merged = merge_task(network, "cats")
    assert not {id(p) for name, p in network.named_parameters() if ".t002." in name} & set(copied)
    with torch.no_grad():
        for parameter in merged.parameters():
            parameter.zero_()
    assert digest(network) == before


@pytest.mark.slow
def test_two_processes_train_a_later_task_alike_and_leave_the_rest(tmp_path):
    program = Path(__file__).with_name("two_processes.py")
    done = subprocess.run([sys.executable, program, tmp_path / "meeting"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
