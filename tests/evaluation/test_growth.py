"""What a task costs, counted by hand, and that measuring disturbs nothing."""

import pytest
import torch
import torchvision
from torch import Tensor, nn

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    insert_adapters,
    registry_of,
    save_task,
    select_task,
    shared_state,
)
from eftgan.errors import UserError
from eftgan.evaluation.flops import forward_flops
from eftgan.evaluation.growth import Growth, format_growth, growth, growth_of, total_growth
from eftgan.models.classifiers import CLASSIFIERS
from eftgan.tensors import tensors_digest, write_tensors

CIFAR = (3, 32, 32)


def classifier_growth(name: str, classes: int, a: int, b: int, size: int = 32, **options) -> Growth:
    with torch.device("meta"):
        network = CLASSIFIERS[name](classes)
    return growth_of(network, AdapterConfig(a, b, heads=("head",), **options), (3, size, size))


def test_effective_group_sizes_are_shown_per_layer():
    layers = {layer.name: layer for layer in classifier_growth("lenet_apd", 10, 6, 50).layers}
    assert [(layer.kind, layer.outputs, layer.sizes) for layer in layers.values()] == [
        ("conv", 20, {"a": 5, "b": 20}), ("conv", 50, {"a": 5, "b": 50}), ("linear", 800, {}), ("linear", 500, {}),
    ]  # fmt: skip


def test_the_executed_cost_is_that_of_the_fused_convolution():
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1))
    counted = growth_of(network, AdapterConfig(4, 8), (3, 10, 10))
    elements = 16 * 100
    assert counted.flops_base == elements * (2 * 27 + 1)
    assert counted.flops_task - counted.flops_base == elements * (2 * 4 * 9 + 1 + 2 * 8 + 1)
    assert counted.flops_executed - counted.flops_base == elements * (2 * 8 * 9 + 1)
    apart = growth_of(nn.Sequential(nn.Conv2d(3, 12, 1)), AdapterConfig(4, 3), (3, 10, 10))
    assert apart.flops_executed == apart.flops_task


def test_every_kind_of_layer_is_counted_by_its_formula():
    def cost(module: nn.Module, shape: tuple[int, ...]) -> int:
        return forward_flops(nn.Sequential(module, nn.Identity()), shape).analytic

    assert cost(nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=False), (4, 8, 8)) == 2 * 6 * 16 * 2 * 9
    assert cost(nn.ConvTranspose2d(4, 6, 2, 2, bias=False), (4, 8, 8)) == 2 * 4 * 64 * 6 * 4
    assert cost(nn.Linear(5, 3), (7, 5)) == 7 * 3 * (2 * 5 + 1)
    assert cost(nn.BatchNorm2d(4), (4, 8, 8)) == cost(nn.GroupNorm(2, 4), (4, 8, 8)) == 2 * 256
    assert cost(nn.PReLU(), (4, 8)) == 32


def test_attention_is_part_of_a_transformers_cost():
    def cost(layers: int) -> int:
        network = torchvision.models.VisionTransformer(
            image_size=8, patch_size=4, num_layers=layers, num_heads=2, hidden_dim=8, mlp_dim=16
        )
        return forward_flops(network, (3, 8, 8)).analytic

    tokens, width = 5, 8
    attention = 4 * tokens * width * (2 * width + 1) + 4 * tokens * tokens * width
    mlp = tokens * 16 * (2 * 8 + 1) + tokens * 16 + tokens * 8 * (2 * 16 + 1)
    assert cost(2) - cost(1) == attention + mlp + 2 * 2 * tokens * width


def test_measuring_a_model_leaves_it_untouched():
    network = CLASSIFIERS["lenet_apd"](10).train()
    insert_adapters(network, AdapterConfig(5, 50, heads=("head",)))
    add_task(network, "one")
    add_task(network, "two", head_size=3)
    select_task(network, "one")
    calls = []
    network.head.register_forward_hook(lambda *_: calls.append(1))
    before = tensors_digest(network.state_dict())
    assert growth(network, CIFAR).head_parameters == 5_010
    assert growth(network, torch.zeros(6, *CIFAR), "two").head_parameters == 501 * 3
    assert tensors_digest(network.state_dict()) == before
    assert registry_of(network).active_names == ("one",)
    assert network.training
    assert calls == []
    with pytest.raises(UserError, match="no task 'three'"):
        growth(network, CIFAR, "three")


def test_a_model_without_tasks_and_a_network_without_adapters_give_the_same():
    network, config = CLASSIFIERS["resnet18_third"](5), AdapterConfig(4, 0, heads=("head",))
    planned = growth_of(network, config, CIFAR)
    insert_adapters(network, config)
    assert growth(network, CIFAR) == planned
    add_task(network, "one")
    add_task(network, "two")
    assert growth(network, CIFAR) == planned
    with pytest.raises(UserError, match="already"):
        growth_of(network, config, CIFAR)
    with pytest.raises(UserError, match="call insert_adapters"):
        growth(nn.Sequential(nn.Linear(2, 2)), (2,))


def test_bytes_are_those_of_the_files(tmp_path):
    network = CLASSIFIERS["resnet18_third"](5)
    insert_adapters(network, AdapterConfig(4, 0, heads=("head",)))
    add_task(network, "one")
    counted = growth(network, CIFAR)
    save_task(network, "one", tmp_path / "task")
    write_tensors(tmp_path / "shared", shared_state(network), {})
    for name, expected in (("task", counted.bytes_task), ("shared", counted.bytes_base)):
        size = (tmp_path / name).stat().st_size
        header = 8 + int.from_bytes((tmp_path / name).read_bytes()[:8], "little")
        assert size - header == expected


def test_a_forward_that_looks_at_values_is_measured_too():
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum().item() < 1 else x

    counted = growth_of(Looks(), AdapterConfig(), (4,))
    assert (counted.flops_base, counted.flops_task) == (36, 40)


def test_the_table_shows_every_count_and_the_layers_if_asked():
    counted = classifier_growth("resnet18", 10, 8, 16)
    table = format_growth(counted)
    for text in ("11,173,962", "432,000", "+3.87 %", "bytes on disk", "as executed"):
        assert text in table
    assert "stem.0" not in table
    assert "stages.3.0.shortcut.0" in format_growth(counted, per_layer=True)
    summed = total_growth({"first": counted, "second": counted})
    assert summed.adapter_parameters == 864_000
    assert "second.stem.0" in format_growth(summed, per_layer=True)
