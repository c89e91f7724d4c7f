"""One promise for every kind of transformation and every mode: neutral at the start, alive, storable, mergeable."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from adapter_tools import output_of, randomise, train
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters import (
    TRANSFORMS,
    AdapterConfig,
    ConvTransform,
    Together,
    add_task,
    insert_adapters,
    load_shared,
    load_task,
    load_task_file,
    merge_task,
    mergeable,
    own_transforms,
    save_task,
    shared_state,
    task_state,
    train_only,
)
from eftgan.adapters.transforms.residual import Branched

NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


@dataclass(frozen=True)
class Case:
    name: str
    layer: Callable[[], nn.Module]
    a: int = 4
    b: int = 4
    mode: str = "serial"
    bias: bool = True
    kind: str = "eft"
    options: dict[str, int | bool] = field(default_factory=dict)
    fused: bool | None = None  # None: not a pair of convolutions
    one_layer: bool | None = None  # merging leaves a single layer; None: either will do
    norm: bool | None = None  # whether a BatchNorm follows (default: behind convolutions) and folds in merging

    def build(self, norm: bool = True) -> nn.Module:
        layer = self.layer()
        if isinstance(layer, _ConvNd):
            behind = NORMS[len(layer.kernel_size)](layer.out_channels)
        else:
            behind = nn.BatchNorm1d(layer.out_features) if self.norm else None
        return nn.Sequential(layer, *([behind] if norm and behind is not None else []), nn.ReLU())

    def config(self) -> AdapterConfig:
        return AdapterConfig(self.a, self.b, mode=self.mode, bias=self.bias, kind=self.kind, options=self.options)

    def adapted(self, norm: bool = True) -> nn.Module:
        network = self.build(norm)
        insert_adapters(network, self.config())
        return network

    def inputs(self) -> Tensor:
        layer = self.layer()
        shape = (4, 4, *[8] * len(layer.kernel_size)) if isinstance(layer, _ConvNd) else (4, 6)
        return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def conv(kind: type[nn.Module] = nn.Conv2d, **options) -> Callable[[], nn.Module]:
    return lambda: kind(4, 12, **({"kernel_size": 3, "padding": 1} | options))


def linear(**options) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(6, 5, **options)


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
EFT = [
    *(Case(f"serial-{n}", conv(), a, b, fused=f, one_layer=not a) for n, a, b, f in SERIAL),
    *(
        Case(f"serial-{n}-no-bias", conv(bias=False), a, b, bias=False, fused=f, one_layer=not a)
        for n, a, b, f in SERIAL
    ),
    *(Case(f"parallel-{n}", c, 4, 2, "parallel", fused=True, one_layer=True) for n, c in PARALLEL_LAYERS.items()),
    Case("parallel-a-no-bias", conv(bias=False), 4, 0, "parallel", bias=False, one_layer=True),
    Case("parallel-b", conv(), 0, 4, "parallel", one_layer=True),
    Case("parallel-1d", conv(nn.Conv1d, stride=2), 4, 2, "parallel", fused=True, one_layer=True),
    Case("parallel-3d", conv(nn.Conv3d, kernel_size=(5, 3, 1), padding=(2, 1, 0)), 4, 2, "parallel", fused=True,
         one_layer=True),
    Case("serial-b-depthwise", conv(groups=4), 0, 6, one_layer=False),
    Case("serial-b-grouped", conv(groups=2), 0, 3, one_layer=True),
    Case("serial-dilated", conv(dilation=2), 4, 4, fused=True, one_layer=False),
    Case("serial-reflect", conv(padding_mode="reflect", stride=2), 4, 4, fused=True, one_layer=False),
    Case("serial-b-circular", conv(padding_mode="circular"), 0, 4, one_layer=True),
    Case("serial-1d-apart", conv(nn.Conv1d), 4, 3, fused=False, one_layer=False),
    Case("serial-b-1d", conv(nn.Conv1d), 0, 4, one_layer=True),
    Case("serial-b-3d", conv(nn.Conv3d), 0, 4, one_layer=True),
    Case("serial-b-transposed", conv(nn.ConvTranspose2d), 0, 4, one_layer=False),
    Case("linear", linear(), one_layer=True),
    Case("linear-no-bias", linear(bias=False), one_layer=True),
]  # fmt: skip
LAYERS = {
    "conv1d": conv(nn.Conv1d, stride=2),
    "conv2d": conv(),
    "conv2d-no-bias": conv(bias=False),
    "conv2d-grouped-strided": conv(groups=2, stride=2),
    "conv2d-reflect": conv(padding_mode="reflect"),
    "conv2d-circular-dilated": conv(padding_mode="circular", dilation=2),
    "conv2d-same": conv(padding="same", kernel_size=(3, 5)),
    "conv3d": conv(nn.Conv3d),
    "transposed1d": conv(nn.ConvTranspose1d, stride=2, bias=False),
    "transposed2d": conv(nn.ConvTranspose2d, stride=2, output_padding=1),
    "transposed2d-grouped": conv(nn.ConvTranspose2d, groups=2),
    "transposed3d": conv(nn.ConvTranspose3d, dilation=2),
    "linear": linear(),
    "linear-no-bias": linear(bias=False),
}
# Every kind of layer for one kind of transform per mode; of the others, layers that differ in the shape of a weight.
THOROUGHLY = ("eft", "batche", "residual")
SHAPES = ("conv2d", "conv2d-grouped-strided", "conv3d", "transposed2d-grouped", "linear", "linear-no-bias")
EVERY_KIND = [
    Case(f"{kind}-{name}", layer, kind=kind)
    for kind in TRANSFORMS
    for name, layer in LAYERS.items()
    if kind in THOROUGHLY or name in SHAPES
]
BATCHE = [
    Case("batche-no-bias", conv(), bias=False, kind="batche", one_layer=True),
    Case("batche-linear-norm", linear(), kind="batche", one_layer=True, norm=True),
]
FACTORS = [
    Case(f"{kind}-rank{rank}-{name}", LAYERS[name], kind=kind, options={"rank": rank})
    for kind, rank in (("adafm", 1), ("lora", 3), ("llora", 3), ("left", 3))
    for name in ("conv2d-grouped-strided", "transposed2d-grouped", "linear")
]
FACTORS.append(Case("left-no-additive", conv(), kind="left", options={"rank": 2, "additive": False}))
CASES = [*EFT, *EVERY_KIND, *BATCHE, *FACTORS]


def begin(network: nn.Module, task: str) -> None:
    """Give a task's transforms the form that trains."""
    for transform in own_transforms(network, task).values():
        transform.begin()


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request) -> Case:
    torch.manual_seed(0)
    return request.param


def test_a_first_task_starts_as_the_base_network(case):
    network, x = case.build(), case.inputs()
    with torch.no_grad():
        before = network.eval()(x)
    drawn = torch.get_rng_state()
    insertion = insert_adapters(network, case.config())
    assert insertion.transforms == ["0"]
    assert torch.equal(output_of(network, None, x), before)
    add_task(network, "one")
    assert torch.equal(output_of(network, "one", x), before)
    assert torch.equal(torch.get_rng_state(), drawn)
    if x.dim() == 4:  # as training and merging keep their networks
        network, x = (each.to(memory_format=torch.channels_last) for each in (network, x))
        assert torch.equal(output_of(network, "one", x), output_of(network, None, x))


def test_two_steps_from_the_neutral_state_move_every_tensor(case):
    network, x = case.adapted(norm=False), case.inputs()
    add_task(network, "one")
    begin(network, "one")
    before = {key: tensor.clone() for key, tensor in task_state(network, "one").items()}
    optimizer = torch.optim.Adam(train_only(network, "one"), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        (network(x) - 1).square().mean().backward()
        optimizer.step()
    assert [key for key, tensor in task_state(network, "one").items() if torch.equal(tensor, before[key])] == []


def test_gradients_reach_every_tensor_of_the_task_and_nothing_else(case):
    network, x = case.adapted(), case.inputs()
    add_task(network, "one")
    add_task(network, "two")
    begin(network, "two")
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


def two_tasks(case: Case, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    network = case.adapted().to(dtype)
    add_task(network, "one")
    add_task(network, "two")
    randomise(network)
    return network, case.inputs().to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_a_merged_task_gives_the_same_output_from_plain_layers(case, dtype, tolerance):
    network, x = two_tasks(case, dtype)
    assert mergeable(network, "two")
    merged = merge_task(network, "two")
    assert torch.allclose(merged(x), output_of(network, "two", x), rtol=0, atol=tolerance)
    branched = isinstance(merged[0], Branched)
    assert branched == (network[0].mode == "both")
    assert not any(type(m).__module__.startswith("eftgan") for m in list(merged.modules())[1 + branched :])
    if case.one_layer is not None:
        assert isinstance(merged[0], nn.Sequential) != case.one_layer
    last = merged[0][-1] if isinstance(merged[0], nn.Sequential) else merged[0]
    if len(merged) == 3:
        takes_norm = not branched and not (isinstance(last, _ConvNd) and last.transposed and last.groups > 1)
        assert isinstance(merged[1], nn.Identity) == takes_norm


def test_tasks_side_by_side_answer_as_each_does_alone(case):
    network, x = two_tasks(case, torch.float64)
    together = Together(network, ["one", "two"])
    for task, answer in zip(("one", "two"), together(x), strict=True):
        assert torch.allclose(answer, output_of(network, task, x), rtol=0, atol=1e-9)
    mixed = together.mixed(x, torch.tensor([1, 0, 0, 1]))
    alone = [output_of(network, task, x) for task in ("one", "two")]
    expected = torch.stack([alone[1][0], alone[0][1], alone[0][2], alone[1][3]])
    assert torch.allclose(mixed, expected, rtol=0, atol=1e-9)


def test_chunks_of_a_batch_are_each_tasks_own(case):
    network, x = two_tasks(case, torch.float64)
    apart = [output_of(network, task, part) for task, part in zip(("two", "one"), x.chunk(2), strict=True)]
    assert torch.allclose(output_of(network, ("two", "one"), x), torch.cat(apart), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", EFT, ids=lambda case: case.name)
def test_pairs_run_as_one_convolution_exactly_where_they_should(case):
    network = case.adapted()
    add_task(network, "one")
    transform = network[0].tasks["t001"]
    assert getattr(transform, "fuses", False) == bool(case.fused)


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
