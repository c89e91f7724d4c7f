"""The promises on networks that were not written for adapters: torchvision's, with random weights."""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
import torchvision
from adapter_tools import images, output_of, randomise, train
from torch import Tensor, nn

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    insert_adapters,
    load_shared,
    load_task_file,
    merge_task,
    save_task,
    shared_state,
    task_names,
    task_state,
)
from eftgan.tensors import read_tensors, tensors_digest, write_tensors

TASKS = ("one", "two", "three", "four")


def small_vit(num_classes: int) -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=num_classes
    )


@dataclass(frozen=True)
class Subject:
    """A network, where its head is, and the image size that it is tried at."""

    name: str
    head: str
    size: int = 32
    make: Callable[..., nn.Module] | None = None

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return (self.make or functools.partial(torchvision.models.get_model, self.name))(num_classes=5)

    def adapted(self, seed: int) -> nn.Module:
        network = self.build(seed)
        insert_adapters(network, AdapterConfig(a=4, b=8, heads=(self.head,)))
        return network


@dataclass
class History:
    """What was seen while the tasks were trained one after another."""

    subject: Subject
    network: nn.Module
    x: Tensor
    outputs: list[dict[str, Tensor]] = field(default_factory=list)  # after each task: outputs of all tasks so far
    states: list[dict[str, str]] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)


SUBJECTS = [
    Subject("resnet18", "fc"),
    Subject("small_vit", "heads.head", make=small_vit),
]
SLOW = [
    Subject("densenet121", "classifier"),
    Subject("vgg16_bn", "classifier.6"),
    Subject("alexnet", "classifier.6", 64),
    Subject("mobilenet_v3_small", "classifier.3"),
    Subject("efficientnet_b0", "classifier.1"),
    Subject("convnext_tiny", "classifier.2"),
    Subject("swin_t", "head"),
    Subject("vit_b_16", "heads.head", 224),
]
ALL = [*SUBJECTS, *(pytest.param(subject, marks=pytest.mark.slow) for subject in SLOW)]


@pytest.fixture(scope="module", params=ALL, ids=lambda subject: subject.name)
def history(request) -> History:
    subject = request.param
    seen = History(subject, subject.adapted(seed=0), images(2, subject.size))
    for task in TASKS:
        add_task(seen.network, task)
        train(seen.network, task, images(2, subject.size, seed=1), shared=task == "one")
        names = task_names(seen.network)
        seen.outputs.append({name: output_of(seen.network, name, seen.x) for name in names})
        seen.states.append({name: tensors_digest(task_state(seen.network, name)) for name in names})
        seen.shared.append(tensors_digest(shared_state(seen.network)))
    return seen


def test_inserting_leaves_outputs_bit_identical(history):
    network = history.subject.build(seed=3).eval()
    with torch.no_grad():
        before = network(history.x)
    insert_adapters(network, AdapterConfig(a=4, b=8, heads=(history.subject.head,)))
    assert torch.equal(output_of(network, None, history.x), before)
    add_task(network, "one")
    assert torch.equal(output_of(network, "one", history.x), before)


def test_later_tasks_leave_earlier_outputs_and_statistics_bit_identical(history):
    for i, task in enumerate(TASKS):
        assert all(torch.equal(later[task], history.outputs[i][task]) for later in history.outputs[i:])
        assert all(later[task] == history.states[i][task] for later in history.states[i:])
    assert len(set(history.shared)) == 1


def test_every_task_learned_something_of_its_own(history):
    outputs = [history.outputs[-1][task] for task in TASKS]
    assert all(torch.isfinite(out).all() for out in outputs)
    assert not any(torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i])


def test_files_bring_every_task_back_bit_identically_in_a_fresh_network(history, tmp_path):
    write_tensors(tmp_path / "shared.safetensors", shared_state(history.network), {})
    fresh = history.subject.adapted(seed=9)
    load_shared(fresh, read_tensors(tmp_path / "shared.safetensors")[0])
    for task in TASKS:
        save_task(history.network, task, tmp_path / f"{task}.safetensors")
        load_task_file(fresh, tmp_path / f"{task}.safetensors")
        assert torch.equal(output_of(fresh, task, history.x), history.outputs[-1][task])


def check_merge(network: nn.Module, task: str, x: Tensor, tolerance: float) -> None:
    expected = output_of(network, task, x)
    assert torch.isfinite(expected).all()
    merged = merge_task(network, task)
    assert torch.allclose(merged(x), expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())
    assert not any(type(module).__module__.startswith("eftgan") for module in merged.modules())


def test_merged_tasks_agree_with_the_adapted_network(history):
    check_merge(history.network, "three", history.x, 1e-4)


def test_merged_tasks_agree_closely_in_double_precision_also_far_from_neutral(history):
    network = copy.deepcopy(history.network).double()
    check_merge(network, "four", history.x.double(), 1e-9)
    randomise(network)
    check_merge(network, "two", history.x.double(), 1e-9)
