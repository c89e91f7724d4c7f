"""One promise for every transformation and mode: neutral at the start, trainable, storable, mergeable."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from adapter_tools import output_of, randomise, train
from torch import Tensor, nn

from eftgan.adapters import (
    AdapterConfig,
    ConvTransform,
    add_task,
    insert_adapters,
    load_shared,
    load_task,
    load_task_file,
    merge_task,
    save_task,
    shared_state,
    task_state,
)


@dataclass(frozen=True)
class Case:
    name: str
    layer: Callable[[], nn.Module]
    a: int
    b: int
    mode: str = "serial"
    bias: bool = True
    fused: bool | None = None  # None: not a pair of convolutions
    one_layer: bool = False  # merging leaves a single layer

    def build(self) -> nn.Module:
        layer = self.layer()
        if isinstance(layer, nn.Linear):
            return nn.Sequential(layer, nn.ReLU())
        return nn.Sequential(layer, nn.BatchNorm2d(12), nn.ReLU())

    def adapted(self) -> nn.Module:
        network = self.build()
        insert_adapters(network, AdapterConfig(self.a, self.b, mode=self.mode, bias=self.bias))
        return network

    def inputs(self) -> Tensor:
        shape = (4, 6) if isinstance(self.layer(), nn.Linear) else (4, 4, 8, 8)
        return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def conv(**options) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(4, 12, **({"kernel_size": 3, "padding": 1} | options))


SERIAL = [
    ("a", 4, 0, None),
    ("b", 0, 4, None),
    ("a-over-b", 6, 3, True),
    ("b-over-a", 2, 12, True),
    ("a-and-b-apart", 4, 3, False),
]
PARALLEL_LAYERS = {
    "3x3": conv(),
    "3x3-stride2": conv(stride=2),
    "1x1-stride2": conv(kernel_size=1, padding=0, stride=2),
    "1x1-valid": conv(kernel_size=1, padding="valid"),
    "5x5-same": conv(kernel_size=5, padding="same"),
    "4x4-stride2-groups": conv(kernel_size=4, stride=2, groups=2),
    "7x3": conv(kernel_size=(7, 3), padding=(3, 1)),
}
CASES = [
    *(Case(f"serial-{n}", conv(), a, b, fused=f, one_layer=not a) for n, a, b, f in SERIAL),
    *(
        Case(f"serial-{n}-no-bias", conv(bias=False), a, b, bias=False, fused=f, one_layer=not a)
        for n, a, b, f in SERIAL
    ),
    *(Case(f"parallel-{n}", c, 4, 2, "parallel", fused=True, one_layer=True) for n, c in PARALLEL_LAYERS.items()),
    Case("parallel-a-no-bias", conv(bias=False), 4, 0, "parallel", bias=False, one_layer=True),
    Case("parallel-b", conv(), 0, 4, "parallel", one_layer=True),
    Case("serial-b-depthwise", conv(groups=4), 0, 6),
    Case("serial-b-grouped", conv(groups=2), 0, 3, one_layer=True),
    Case("serial-dilated", conv(dilation=2), 4, 4, fused=True),
    Case("serial-reflect", conv(padding_mode="reflect", stride=2), 4, 4, fused=True),
    Case("serial-b-circular", conv(padding_mode="circular"), 0, 4, one_layer=True),
    Case("linear", lambda: nn.Linear(6, 5), 4, 4, one_layer=True),
    Case("linear-no-bias", lambda: nn.Linear(6, 5, bias=False), 4, 4, one_layer=True),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request) -> Case:
    torch.manual_seed(0)
    return request.param


def test_a_first_task_starts_as_the_base_network(case):
    network, x = case.build(), case.inputs()
    with torch.no_grad():
        before = network.eval()(x)
    insert_adapters(network, AdapterConfig(case.a, case.b, mode=case.mode, bias=case.bias))
    assert torch.equal(output_of(network, None, x), before)
    add_task(network, "one")
    assert torch.equal(output_of(network, "one", x), before)


def test_pairs_run_as_one_convolution_exactly_where_they_should(case):
    network = case.adapted()
    add_task(network, "one")
    transform = network[0].tasks["t001"]
    assert getattr(transform, "fuses", False) == bool(case.fused)


def test_gradients_reach_every_tensor_of_the_task_and_nothing_else(case):
    network, x = case.adapted(), case.inputs()
    add_task(network, "one")
    add_task(network, "two")
    randomise(network)
    shared = {key: tensor.clone() for key, tensor in shared_state(network).items()}
    one = {key: tensor.clone() for key, tensor in task_state(network, "one").items()}
    train(network, "two", x)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network[0].tasks["t002"].parameters())
    assert all(torch.equal(tensor, shared[key]) for key, tensor in shared_state(network).items())
    assert all(torch.equal(tensor, one[key]) for key, tensor in task_state(network, "one").items())


def test_a_saved_task_comes_back_bit_identically_in_a_fresh_network(case, tmp_path):
    network, x = case.adapted(), case.inputs()
    add_task(network, "one")
    randomise(network)
    save_task(network, "one", tmp_path / "one.safetensors")
    fresh = case.adapted()
    load_shared(fresh, shared_state(network))
    assert load_task_file(fresh, tmp_path / "one.safetensors") == "one"
    assert torch.equal(output_of(fresh, "one", x), output_of(network, "one", x))
    load_task(network, "copy", task_state(network, "one"))
    assert torch.equal(output_of(network, "copy", x), output_of(network, "one", x))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_a_merged_task_gives_the_same_output_from_plain_layers(case, dtype, tolerance):
    network, x = case.adapted().to(dtype), case.inputs().to(dtype)
    add_task(network, "one")
    add_task(network, "two")
    randomise(network)
    merged = merge_task(network, "two")
    assert torch.allclose(merged(x), output_of(network, "two", x), rtol=0, atol=tolerance)
    assert not any(type(m).__module__.startswith("eftgan") for m in merged.modules())
    assert isinstance(merged[0], nn.Sequential) != case.one_layer
    if not isinstance(merged[0], nn.Linear):
        assert isinstance(merged[1], nn.Identity)


@pytest.mark.parametrize(
    ("channels", "a", "b", "groups"),
    [(64, 8, 4, [8]), (64, 8, 16, [4]), (64, 32, 16, [2]), (64, 8, 32, [8, 2]), (64, 16, 32, [4, 2]),
     (64, 4, 16, [4]), (64, 4, 32, [8, 2]), (64, 4, 0, [8]), (64, 2, 0, [8]), (64, 0, 4, [8]),
     (64, 1, 1, [64]), (64, 1, 16, [64, 4]), (64, 1, 0, [64]), (48, 12, 0, [4]), (20, 4, 0, [5]), (60, 5, 0, [12])],
)  # fmt: skip
def test_group_convolutions_run_in_the_form_that_is_fast(channels, a, b, groups):
    transform = ConvTransform(channels, channels, a, b)
    transform.reset_parameters()
    x = torch.randn(2, channels, 5, 5)
    assert [count for _, _, count in transform.executed()] == groups
    assert torch.allclose(transform(x), transform.forward_separate(x), atol=1e-5)
