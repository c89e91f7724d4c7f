"""Progressive networks (Rusu et al. 2016): a column of layers per task, which also reads the columns before it.

Where a task's layer reads h, the same layer of every earlier task has read h_j; these are weighted, made as narrow as h
by V, and added to the layer's output through U, which is shaped as the layer is (eq. 2 of the paper):

    y = W h + U relu(V [alpha_j h_j]_{j < t})

Earlier columns run before a task's own, in eval mode and without a graph, and every bank notes what it was given.
"""

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from eftgan.adapters.adopting import Adopting
from eftgan.adapters.bank import TaskBank, named_banks, registry_of
from eftgan.adapters.chains import chain_of, inputs_of, resized
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.layers import Layer, outputs_of
from eftgan.adapters.modes import evaluating
from eftgan.adapters.transforms import Flops, Option, Transform


class Lateral(nn.Module):
    """U relu(V [alpha_j h_j]): what a layer adds to its output of the inputs h_j of earlier columns.

    V goes over channels alone, also where a map was flattened: a channel's pixels then stand together. It has a bias; U
    has none, since the layer has one. `squashed`: with the relu, which is left out before the outputs of a network.
    """

    def __init__(self, layer: Layer, channels: int, columns: int, *, squashed: bool = True) -> None:
        super().__init__()
        self.channels, self.squashed = channels, squashed
        self.alpha = nn.Parameter(torch.full((columns,), 1 / columns))
        self.V = nn.Conv1d(columns * channels, channels, 1)
        linear = isinstance(layer, nn.Linear)  # a head has more in it than the layer alone
        self.U = nn.Linear(inputs_of(layer), outputs_of(layer)) if linear else copy.deepcopy(layer)
        self.U.bias = None
        self.U.reset_parameters()
        self.to(layer.weight)

    def forward(self, earlier: Sequence[Tensor]) -> Tensor:
        columns = [weight * h.reshape(len(h), self.channels, -1) for weight, h in zip(self.alpha, earlier, strict=True)]
        narrow = self.V(torch.cat(columns, dim=1))  # (B, channels, positions)
        return self.U((F.relu(narrow) if self.squashed else narrow).reshape(earlier[0].shape))


class ReadsColumns(Adopting):
    """A task's layer that may have laterals: none in the first task, and none where `channels` is 0."""

    channels: int  # of the layer's input
    lateral: Lateral | None

    def own_layer(self) -> Layer:
        raise NotImplementedError

    def begin_laterals(self, columns: int) -> None:
        """Draw what reads so many earlier columns."""
        squashed = isinstance(self, Column)
        reads = self.channels and columns
        self.lateral = Lateral(self.own_layer(), self.channels, columns, squashed=squashed) if reads else None

    @property
    def columns(self) -> int:
        return 0 if self.lateral is None else len(self.lateral.alpha)

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        columns = len(state["lateral.alpha"]) if "lateral.alpha" in state else 0
        if state and columns != self.columns:
            with torch.random.fork_rng(devices=()):  # what is drawn is overwritten
                self.begin_laterals(columns)

    def with_laterals(self, y: Tensor, earlier: Sequence[Tensor]) -> Tensor:
        return y if self.lateral is None else y + self.lateral(earlier)


class Column(ReadsColumns, Transform):
    """One layer of a task's column. `pattern`: what it is a copy of; `channels`: of its input, 0 for no laterals."""

    def __init__(self, pattern: Layer, channels: int) -> None:
        super().__init__()
        self.own, self.channels, self.lateral = copy.deepcopy(pattern), channels, None

    def own_layer(self) -> Layer:
        return self.own

    def set_identity(self) -> None:
        """There is no neutral state: a column shares nothing."""

    def reset_parameters(self) -> None:
        self.own.reset_parameters()

    def forward(self, x: Tensor, earlier: Sequence[Tensor]) -> Tensor:
        return self.with_laterals(self.own(x), earlier)

    def tasks_before(self) -> int | None:
        return self.columns if self.channels else None

    def describe(self) -> dict[str, Option]:
        return {"kind": "column", "inputs": inputs_of(self.own), "width": outputs_of(self.own), "reads": self.columns}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        cost = out.numel() * (2 * self.own.weight[0].numel() + (self.own.bias is not None))
        if self.lateral is not None:  # alpha, V with its bias, relu, U
            cost += x.numel() * (self.columns * (1 + 2 * self.channels) + 2)
            cost += 2 * out.numel() * self.lateral.U.weight[0].numel()
        return Flops(cost, cost)


class ColumnHead(ReadsColumns, nn.Linear):
    """The output layer of a column; what it reads of others is not squashed."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__(inputs, outputs, bias)
        self.channels, self.lateral = inputs, None

    def own_layer(self) -> Layer:
        return self

    def forward(self, x: Tensor, earlier: Sequence[Tensor] = ()) -> Tensor:
        return self.with_laterals(super().forward(x), earlier)


class Trail:
    """Known to all banks of a network: whether an earlier column is running, whose inputs are to be noted."""

    noting = False


class ColumnBank(TaskBank):
    """The same layer of all columns, with what those have read that ran before the active one."""

    shares_batches = False
    reads_earlier = True

    def __init__(self, like: TaskBank | nn.Module, trail: Trail, *args: Any) -> None:
        super().__init__(like, *args)
        self.trail = trail
        self.notes: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        row = self.registry.active
        if not isinstance(row, dict):
            return super().forward(x)
        y = self.task(row)(x, self.notes)
        if self.trail.noting:
            self.notes.append(x)
        else:
            self.notes = []
        return y


def run_earlier_columns(network: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Before a forward: the columns of all earlier tasks, one after the other, so that the active one can read them."""
    registry, banks = registry_of(network), [bank for _, bank in named_banks(network) if isinstance(bank, ColumnBank)]
    active, trail = registry.active, banks[0].trail
    for bank in banks:
        bank.notes = []
    if not isinstance(active, dict) or trail.noting:
        return
    rows = list(registry.rows.values())
    place = next(place for place, row in enumerate(rows) if row is active)
    trail.noting = True
    try:
        with torch.no_grad(), evaluating(network):
            for row in rows[:place]:
                registry.active = row
                network.forward(*inputs)
    finally:
        registry.active, trail.noting = active, False


def add_columns(
    network: nn.Module, before: Mapping[Layer, Layer | None], patterns: Mapping[nn.Module, nn.Module]
) -> None:
    """Give every layer of an adapted network without tasks a bank of columns, and the heads laterals.

    before: as `layers_before` found them; layers that it does not know stay shared. patterns: layers and norms of other
    sizes that columns are made of, in the place of the network's own.
    """
    registry, trail = registry_of(network), Trail()
    heads = {bank.layer: bank for _, bank in named_banks(network) if bank.part == "heads"}
    new: dict[nn.Module, nn.Module] = {}
    for _, bank in named_banks(network):
        if bank.part == "norms" and bank.layer in patterns:
            bank.make = partial(copy.deepcopy, patterns[bank.layer])
    for layer, source in before.items():
        pattern = _of(layer, patterns)
        if (head := heads.get(layer)) is not None:
            assert isinstance(pattern, nn.Linear)
            make_head = partial(ColumnHead, pattern.in_features, pattern.out_features, pattern.bias is not None)
            new[head] = ColumnBank(layer, trail, registry, "heads", "replace", make_head)
            continue
        channels = 0 if source is None else _channels(pattern, _of(source, patterns))
        new[layer] = ColumnBank(layer, trail, registry, "transforms", "replace", partial(Column, pattern, channels))
    replace_modules(network, new)
    network.register_forward_pre_hook(run_earlier_columns)


def _of(layer: Layer, patterns: Mapping[nn.Module, nn.Module]) -> Layer:
    return cast(Layer, patterns.get(layer, layer))


def _channels(layer: Layer, before: Layer) -> int:
    """Channels of what a layer reads: those of the layer before it, where a map was flattened."""
    inputs, outputs = inputs_of(layer), outputs_of(before)
    return outputs if isinstance(layer, nn.Linear) and inputs % outputs == 0 else inputs


def narrower(network: nn.Module, width: float) -> dict[nn.Module, nn.Module]:
    """For every layer and BatchNorm of a chain, one of so many times its outputs, rounded; the last keeps its own."""
    reason = f"columns of another width than 1 (method.width: {width}) are for chains of simple layers"
    found: dict[nn.Module, nn.Module] = {}
    before = None
    links = chain_of(network, reason)
    for link in links:
        outputs = outputs_of(link.layer) if link is links[-1] else max(1, round(width * outputs_of(link.layer)))
        inputs = inputs_of(link.layer) if before is None else before * link.positions
        found[link.layer] = resized(link.layer, inputs, outputs)
        if link.norm is not None:
            norm = network.get_submodule(link.norm)
            assert isinstance(norm, _BatchNorm)
            found[norm] = type(norm)(outputs, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        before = outputs
    return found
