"""Which layers get a bank, which stay shared, and that nothing is broken in silence."""

import pytest
import torch
import torchvision
from adapter_tools import images, output_of, randomise, small_cnn, train
from torch import Tensor, nn
from torch.nn import functional as F

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    fingerprint,
    insert_adapters,
    merge_task,
    named_banks,
    shared_state,
    task_state,
)
from eftgan.errors import UserError


class TwiceUsed(nn.Module):
    """One convolution called twice, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.alias = self.conv
        self.final_norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.final_norm(self.alias(self.norm(self.conv(x))))


class Untraceable(nn.Module):
    """Control flow that depends on data, and an intermediate value that is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            return x
        maps = []
        for layer in self.conv:
            x_map = layer(maps[-1] if maps else x[:, None, :, None])
            maps.append(x_map)
        return self.layers(x) + sum(m.mean() for m in maps)


class BareWeights(nn.Module):
    """Reads the weights of a layer that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.called = nn.Linear(4, 4)
        self.read = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.called(x), self.read.weight, self.read.bias)


def adapt(network: nn.Module, **options) -> nn.Module:
    insert_adapters(network, AdapterConfig(**({"a": 2, "b": 2} | options)))
    add_task(network, "one")
    return network


def test_layers_are_found_by_type_and_reported_by_part():
    insertion = insert_adapters(small_cnn(), AdapterConfig(4, 4, heads=("7",)))
    assert insertion.transforms == ["0", "3", "6"]
    assert insertion.norms == ["1"]
    assert insertion.heads == ["7"]
    assert "transforms: 3 layers" in str(insertion)


def test_excluded_layers_stay_shared_and_are_listed():
    network = small_cnn()
    insertion = insert_adapters(network, AdapterConfig(4, 4, exclude=("0", "[67]")))
    assert insertion.transforms == ["3"]
    assert dict.fromkeys(("0", "6", "7"), "excluded") == insertion.shared
    assert type(network[0]) is nn.Conv2d


def test_size_patterns_give_layers_their_own_group_sizes():
    network = adapt(small_cnn(), a=4, b=4, sizes={"3": (6, 0)})
    first, second = network[0].tasks["t001"], network[3].tasks["t001"]
    assert (first.spatial.groups, first.depth.groups) == (2, 2)
    assert second.spatial.groups == 2
    assert second.depth is None


def test_parts_limit_what_gets_a_bank():
    network = small_cnn()
    insertion = insert_adapters(network, AdapterConfig(heads=("7",), parts=("heads",)))
    assert [name for name, _ in named_banks(network)] == ["7"] == insertion.heads


def test_a_module_used_twice_is_adapted_once():
    network = adapt(TwiceUsed()).eval()
    assert network.conv is network.alias
    assert [name for name, _ in named_banks(network)] == ["conv", "norm", "final_norm"]
    assert not any("alias" in key for key in task_state(network, "one"))


def test_the_shared_weights_of_a_module_used_twice_do_not_grow_with_tasks():
    network = adapt(TwiceUsed())
    before = fingerprint(network)
    add_task(network, "two")
    assert fingerprint(network) == before
    assert not any(".tasks." in key for key in shared_state(network))


def test_a_module_used_twice_merges_without_folding_into_it():
    network = adapt(TwiceUsed()).double()
    randomise(network)
    x = torch.randn(2, 4, 5, 5).double()
    merged = merge_task(network, "one")
    assert torch.allclose(merged(x), output_of(network, "one", x), rtol=0, atol=1e-9)
    assert isinstance(merged.norm, nn.BatchNorm2d)


def test_networks_that_cannot_be_traced_are_adapted_and_merge_without_folding():
    network = Untraceable()
    insertion = insert_adapters(network, AdapterConfig(2, 2))
    assert "undo" in insertion.shared["layers.0"]
    add_task(network, "one")
    network.double()
    randomise(network)
    x = torch.randn(4, 6).double()
    merged = merge_task(network, "one")
    assert torch.allclose(merged(x), output_of(network, "one", x), rtol=0, atol=1e-9)
    assert isinstance(merged.conv[1], nn.BatchNorm2d)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0),
    ],
)
def test_attention_stays_shared_and_is_listed(make):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make()
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            attention = isinstance(self.inner, nn.MultiheadAttention)
            return self.head(self.inner(x, x, x)[0] if attention else self.inner(x))

    network, x = Net().eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        before = network(x)
    insertion = insert_adapters(network, AdapterConfig())
    assert "used without" in insertion.shared["inner"]
    assert insertion.transforms == ["head"]
    add_task(network, "one")
    assert torch.equal(output_of(network, "one", x), before)
    train(network, "one", x)
    assert not torch.equal(output_of(network, "one", x), before)


def test_attention_alone_has_nothing_to_adapt():
    with pytest.raises(UserError, match="no layer"):
        insert_adapters(nn.MultiheadAttention(8, 2))


def test_layers_whose_weights_are_read_bare_stay_shared_and_are_listed():
    network, x = BareWeights().eval(), torch.randn(2, 4)
    before = network(x)
    insertion = insert_adapters(network, AdapterConfig())
    assert insertion.transforms == ["called"]
    assert "without its forward" in insertion.shared["read"]
    add_task(network, "one")
    assert torch.equal(network(x), before)


def test_windowed_attention_that_reads_weights_bare_still_runs():
    swin = torchvision.models.SwinTransformer([4, 4], 16, [2], [2], [4, 4], num_classes=3).eval()
    with torch.no_grad():
        before = swin(images(2, 16))
    insertion = insert_adapters(swin, AdapterConfig(2, 2, heads=("head",)))
    assert "features.1.0.attn.qkv" in insertion.shared
    add_task(swin, "one")
    assert torch.equal(output_of(swin, "one", images(2, 16)), before)


def test_reading_the_weight_of_a_bank_says_what_to_do():
    network = adapt(small_cnn())
    with pytest.raises(AttributeError, match="exclude this layer"):
        _ = network[0].weight
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = network[0].colour
    assert network[6].in_features == 192
    assert network[3].stride == (2, 2)


def test_convolutions_of_any_kind_take_adapters_norms_and_heads():
    network = nn.Sequential(
        nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 4, 2, 2), nn.Unflatten(2, (4, 4)),
        nn.ConvTranspose2d(4, 6, 2, stride=2), nn.BatchNorm2d(6), nn.Unflatten(3, (4, 2)),
        nn.Conv3d(6, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ConvTranspose3d(4, 2, 1),
    )  # fmt: skip
    insertion = insert_adapters(network, AdapterConfig(2, 2, heads=("9",)))
    assert (insertion.transforms, insertion.norms, insertion.heads) == (["0", "2", "4", "7"], ["1", "5", "8"], ["9"])
    add_task(network, "one")
    add_task(network, "two", head_size=3)
    network.double()
    randomise(network)
    x = torch.randn(2, 3, 8).double()
    assert output_of(network, "two", x).shape == (2, 3, 8, 4, 2)
    merged = merge_task(network, "two")
    assert torch.allclose(merged(x), output_of(network, "two", x), rtol=0, atol=1e-9)
    assert all(isinstance(merged[index], nn.Identity) for index in (1, 5, 8))


def test_parallel_refuses_transposed_convolutions():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ConvTranspose2d(4, 4, 3, padding=1))
    with pytest.raises(UserError, match="beside a transposed convolution is not supported; exclude it"):
        insert_adapters(network, AdapterConfig(2, 2, mode="parallel"))
    assert type(network[0]) is nn.Conv2d


def test_unknown_layers_with_state_are_listed():
    network = nn.Sequential(nn.Bilinear(3, 3, 2), nn.PReLU(), nn.Conv2d(3, 4, 1), nn.Embedding(2, 2))
    insertion = insert_adapters(network, AdapterConfig())
    assert list(insertion.shared) == ["0", "1", "3"]


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(4),
        nn.BatchNorm2d(4, affine=False),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.GroupNorm(2, 4),
        nn.LayerNorm([4, 6, 6]),
        torchvision.models.convnext.LayerNorm2d(4),
    ],
    ids=lambda norm: f"{type(norm).__name__}-{len(norm.state_dict())}",
)
def test_each_task_has_its_own_normalisation(norm):
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), norm, nn.ReLU())
    network = adapt(network)
    x = images(4, 6)
    train(network, "one", x, shared=True)
    one, state = output_of(network, "one", x), dict(task_state(network, "one"))
    state = {key: tensor.clone() for key, tensor in state.items()}
    for init in ("previous", "identity", "random"):
        add_task(network, init + "-start", init)
        train(network, init + "-start", images(4, 6, seed=3) * 3 + 1)
    assert torch.equal(output_of(network, "one", x), one)
    assert all(torch.equal(tensor, state[key]) for key, tensor in task_state(network, "one").items())
    merged = merge_task(network.double(), "random-start")
    expected = output_of(network, "random-start", x.double())
    assert torch.allclose(merged(x.double()), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4, affine=False, track_running_stats=False), nn.InstanceNorm2d(4)])
def test_normalisation_without_state_is_left_alone(norm):
    insertion = insert_adapters(nn.Sequential(nn.Conv2d(3, 4, 1), norm), AdapterConfig())
    assert insertion.norms == []


def test_a_diagonal_is_left_out_only_where_batchnorm_would_undo_it():
    network = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 4), nn.ReLU(), nn.BatchNorm1d(4))
    assert insert_adapters(network, AdapterConfig()).transforms == ["2"]
    over_tokens = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(3))  # (B, 3, 5): normalises tokens, not features
    assert insert_adapters(over_tokens, AdapterConfig()).transforms == ["0"]


def test_hooks_on_layers_go_on_firing():
    class Recorder:
        def __init__(self) -> None:
            self.shapes = []

        def __call__(self, module, inputs, output) -> None:
            self.shapes.append(tuple(output.shape))

    network, recorder = small_cnn(), Recorder()
    for index in (0, 1, 6, 7):
        network[index].register_forward_hook(recorder.__call__)
    adapt(network, heads=("7",)).eval()
    network(images())
    assert recorder.shapes == [(4, 8, 8, 8), (4, 8, 8, 8), (4, 6), (4, 5)]
    network[1].register_forward_hook(recorder)
    network(images())
    assert len(recorder.shapes) == 9


def test_parametrised_layers_are_adapted_and_merge():
    layer = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3, padding=1))
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(64, 3))
    network = nn.Sequential(layer, nn.BatchNorm2d(4), nn.Flatten(), linear)
    network = nn.Sequential(*network[:2], nn.AdaptiveAvgPool2d(4), *network[2:])
    insertion = insert_adapters(network, AdapterConfig(0, 4))
    assert insertion.shared == {}
    add_task(network, "one")
    network.double()
    randomise(network)
    state = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    merged = merge_task(network, "one")
    assert all(torch.equal(tensor, state[key]) for key, tensor in network.state_dict().items())
    x = images().double()
    assert torch.allclose(merged(x), output_of(network, "one", x), rtol=0, atol=1e-9)
    assert type(merged[0]) is nn.Conv2d


def test_parallel_refuses_layers_that_a_3x3_branch_cannot_follow():
    network = torchvision.models.alexnet(num_classes=3)
    with pytest.raises(UserError, match=r"features\.0.*exclude it"):
        insert_adapters(network, AdapterConfig(mode="parallel"))
    assert type(network.features[0]) is nn.Conv2d
    insertion = insert_adapters(network, AdapterConfig(mode="parallel", exclude=("features.0",)))
    assert "features.3" in insertion.transforms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"a": -1}, "negative"),
        ({"b": -2}, "negative"),
        ({"a": 0, "b": 0}, "no transformation"),
        ({"a": 2.5}, "whole numbers"),
        ({"sizes": {"0": (0, 0)}}, "no transformation"),
        ({"mode": "sideways"}, "serial or parallel"),
        ({"parts": ("wheels",)}, "unknown parts"),
        ({"heads": "fc"}, "several patterns"),
        ({"exclude": "fc"}, "several patterns"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        AdapterConfig(**options)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (small_cnn, {"heads": ("fc",)}, "head 'fc' names no"),
        (small_cnn, {"parts": ("heads",)}, "no layer"),
        (lambda: nn.Sequential(nn.ReLU()), {}, "no layer"),
        (lambda: nn.Conv2d(3, 3, 1), {}, "wrap it"),
        (lambda: nn.Sequential(nn.LazyConv2d(4, 3)), {}, "lazy"),
        (lambda: adapt(small_cnn()), {}, "already"),
    ],
)
def test_networks_that_do_not_fit_are_refused_untouched(make, options, message):
    network = make()
    before = [(name, id(module)) for name, module in network.named_modules()]
    with pytest.raises(UserError, match=message):
        insert_adapters(network, AdapterConfig(**options))
    assert [(name, id(module)) for name, module in network.named_modules()] == before
