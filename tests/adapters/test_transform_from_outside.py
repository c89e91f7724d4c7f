"""A transform that the package does not know needs one line in TRANSFORMS and nothing else."""

import copy
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn, train
from torch import Tensor, nn

from eftgan.adapters import (
    TRANSFORMS,
    AdapterConfig,
    NotMergeable,
    Together,
    Transform,
    add_task,
    fingerprint,
    inference_network,
    insert_adapters,
    load_shared,
    load_task_file,
    merge_task,
    mergeable,
    save_task,
    shared_state,
    task_names,
    task_state,
)
from eftgan.adapters.layers import Layer, outputs_of, with_weights
from eftgan.adapters.layout import restore_layout, task_layout
from eftgan.adapters.transforms import Flops, Option, Plan, Planner, Site
from eftgan.errors import UserError
from eftgan.evaluation.growth import format_growth, growth


class Film(Transform):
    """A scale and a shift per output channel."""

    def __init__(self, channels: int, strength: float) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))
        self.strength = strength
        self.set_identity()

    @torch.no_grad()
    def set_identity(self) -> None:
        self.scale.zero_()
        self.shift.zero_()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.scale, 0.0, 0.02)
        nn.init.zeros_(self.shift)

    def forward(self, y: Tensor) -> Tensor:
        shape = (-1, *[1] * (y.dim() - 2))
        return y * (1 + self.strength * self.scale.view(shape)) + self.shift.view(shape)

    def describe(self) -> dict[str, Option]:
        return {"kind": "film"}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        return Flops(2 * out.numel(), 2 * out.numel())

    def merged(self, layer: Layer) -> nn.Module:
        scale = 1 + self.strength * self.scale
        bias = self.shift if layer.bias is None else layer.bias * scale + self.shift
        return with_weights(layer, layer.weight * scale.view(-1, *[1] * (layer.weight.dim() - 1)), bias)


class InputFilm(Film):
    """The scale follows the mean of the layer's input, so that no plain layer can stand for it."""

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        level = x.flatten(1).mean(1)[:, None] * self.scale  # (B, K)
        shape = (*level.shape, *[1] * (y.dim() - 2))
        return y * (1 + level.view(shape)) + self.shift.view(shape[1:])

    def merged(self, layer: Layer) -> nn.Module:
        return Transform.merged(self, layer)


class OwnLayer(Transform):
    """A whole layer per task in the place of the shared one."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.pattern = [layer]  # in a list: the layer is not a part of this module
        self.own = copy.deepcopy(layer)

    def set_identity(self) -> None:
        self.own.load_state_dict(self.pattern[0].state_dict())

    def reset_parameters(self) -> None:
        self.own.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return self.own(x)

    def describe(self) -> dict[str, Option]:
        return {"kind": "own layer", "outputs": outputs_of(self.own)}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        cost = 2 * out.numel() * self.own.weight[0].numel()
        return Flops(cost, cost)

    def merged(self, layer: Layer) -> nn.Module:
        return copy.deepcopy(self.own)


@dataclass(frozen=True)
class FilmPlanner(Planner):
    strength: float = 1.0

    def plan(self, site: Site) -> Plan | str:
        if isinstance(site.layer, nn.Linear):
            return "not for linear layers"
        return Plan("serial", partial(Film, outputs_of(site.layer), self.strength))


@dataclass(frozen=True)
class InputFilmPlanner(Planner):
    def plan(self, site: Site) -> Plan:
        return Plan("both", partial(InputFilm, outputs_of(site.layer), 1.0))


@dataclass(frozen=True)
class OwnLayerPlanner(Planner):
    def plan(self, site: Site) -> Plan:
        return Plan("replace", partial(OwnLayer, site.layer))


KINDS = {"film": FilmPlanner, "input-film": InputFilmPlanner, "own-layer": OwnLayerPlanner}


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch) -> str:
    monkeypatch.setitem(TRANSFORMS, request.param, KINDS[request.param])
    return request.param


def adapted(kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    network = small_cnn().eval()
    insert_adapters(network, AdapterConfig(kind=kind, heads=("7",)))
    return network


def test_a_foreign_kind_starts_neutral_trains_and_leaves_earlier_tasks(kind):
    network, x = adapted(kind), images()
    base = output_of(network, None, x)
    add_task(network, "one")
    assert torch.equal(output_of(network, "one", x), base)
    train(network, "one", x, shared=True)
    one = output_of(network, "one", x)
    add_task(network, "two")
    train(network, "two", images(seed=4))
    add_task(network, "three", "random")
    assert torch.equal(output_of(network, "one", x), one)
    assert not torch.equal(output_of(network, "two", x), one)


def two_tasks(kind: str) -> tuple[nn.Module, Tensor]:
    network = adapted(kind)
    add_task(network, "one")
    add_task(network, "two", head_size=3)
    network.double()
    randomise(network)
    return network, images().double()


def test_a_foreign_kind_goes_through_files_and_layouts(kind, tmp_path):
    network, x = two_tasks(kind)
    save_task(network, "two", tmp_path / "two.safetensors")
    fresh = adapted(kind, seed=1).double()
    load_shared(fresh, shared_state(network))
    load_task_file(fresh, tmp_path / "two.safetensors")
    assert torch.equal(output_of(fresh, "two", x), output_of(network, "two", x))
    grown = adapted(kind, seed=2).double()
    restore_layout(grown, task_layout(network))
    grown.load_state_dict(network.state_dict())
    assert torch.equal(output_of(grown, "one", x), output_of(network, "one", x))


def test_a_foreign_kind_runs_merged_or_as_it_is(kind):
    network, x = two_tasks(kind)
    before = digest(network)
    merges = kind != "input-film"
    assert mergeable(network, "two") == merges
    if not merges:
        with pytest.raises(NotMergeable, match="InputFilm cannot be merged"):
            merge_task(network, "two")
    drawing = inference_network(network.train(), "two")
    assert torch.allclose(drawing(x), output_of(network.eval(), "two", x), rtol=0, atol=1e-9)
    assert any(type(m).__module__.startswith("eftgan") for m in drawing.modules()) != merges
    assert not any(parameter.requires_grad for parameter in drawing.parameters())
    assert not any(module.training for module in drawing.modules())
    assert digest(network) == before


def test_a_foreign_kind_runs_together_and_in_chunks(kind):
    network, x = two_tasks(kind)
    alone = [output_of(network, task, x) for task in ("one", "two")]
    for answer, expected in zip(Together(network, ["one", "two"])(x), alone, strict=True):
        assert torch.allclose(answer, expected, rtol=0, atol=1e-9)
    chunks = output_of(network, ("one", "one"), x)
    assert torch.allclose(chunks, alone[0], rtol=0, atol=1e-9)


def test_a_foreign_kind_is_measured(kind):
    network, _ = two_tasks(kind)
    counted = growth(network, (3, 8, 8), "one")
    table = format_growth(counted, per_layer=True)
    assert counted.adapter_parameters == sum(layer.parameters for layer in counted.layers)
    if kind == "film":
        assert [layer.name for layer in counted.layers] == ["0", "3"]
        assert counted.flops_task - counted.flops_base == 2 * (8 * 64 + 12 * 16)
        assert [line.split() for line in table.splitlines()][-3:] == [
            ["layer", "outputs", "transform", "parameters"], ["0", "8", "film", "16"], ["3", "12", "film", "24"],
        ]  # fmt: skip


def test_what_a_foreign_kind_refuses_is_listed_and_its_options_are_checked(monkeypatch):
    monkeypatch.setitem(TRANSFORMS, "film", FilmPlanner)
    insertion = insert_adapters(small_cnn(), AdapterConfig(kind="film"))
    assert insertion.transforms == ["0", "3"]
    assert insertion.shared == {"6": "not for linear layers", "7": "not for linear layers"}
    with pytest.raises(UserError, match="kind film has no option 'stength'; it knows: strength"):
        AdapterConfig(kind="film", options={"stength": 2.0})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "eft"}, "made for kind film, this model's adapters are eft"),
        ({"kind": "film", "options": {"strength": 2.0}}, "made for strength 0.5, this model's adapters are 2.0"),
    ],
)
def test_a_file_of_other_adapters_is_refused(monkeypatch, tmp_path, config, message):
    """Tensors of the same shape need not mean the same."""
    monkeypatch.setitem(TRANSFORMS, "film", FilmPlanner)

    def build(**settings) -> nn.Module:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 4, 3))
        insert_adapters(network, AdapterConfig(**settings))
        return network

    source, target = build(kind="film", options={"strength": 0.5}), build(**config)
    add_task(source, "one")
    save_task(source, "one", tmp_path / "one.safetensors")
    before = digest(target)
    with pytest.raises(UserError, match=message):
        load_task_file(target, tmp_path / "one.safetensors")
    assert digest(target) == before


def test_a_network_that_cannot_be_merged_is_copied_with_one_task_alone(monkeypatch):
    monkeypatch.setitem(TRANSFORMS, "input-film", InputFilmPlanner)
    network, x = two_tasks("input-film")
    alone = inference_network(network, "one")
    expected = alone(x)
    assert task_names(alone) == ["one"]
    assert fingerprint(alone) == fingerprint(network)
    assert not any(".t002." in key for key in alone.state_dict())
    assert list(task_state(alone, "one")) == list(task_state(network, "one"))
    randomise(network, seed=9)
    assert torch.equal(alone(x), expected)
