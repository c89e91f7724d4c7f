"""Layers that gain units with every task: earlier tasks never see later units (Xu and Zhu 2018, among others).

    W_t = [ W_{t-1}  right_t ]        right_t: from the units that the layer before gained to those that were there
          [     bottom_t     ]        bottom_t: from all units of the layer before to those that this layer gains

Task t computes with W_t, so it reads all that is there, and leaves W_{t-1} as it is. The network must be a chain.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from eftgan.adapters.adopting import Adopting
from eftgan.adapters.bank import Row, TaskBank, named_banks, registry_of
from eftgan.adapters.chains import Link
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.layers import Layer
from eftgan.adapters.transforms import Option, Transform
from eftgan.errors import UserError

SMALL = 0.01  # standard deviation of what units that were there read of new ones, at the start


class Block(Transform):
    """The units that one task adds to one layer; in the neutral state none."""

    earlier: Tensor
    right: nn.Parameter | None
    bottom: nn.Parameter | None
    own_bias: nn.Parameter | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("earlier", torch.tensor(0, dtype=torch.int32))  # tasks before this one
        self.set_identity()

    def set_identity(self) -> None:
        self.right = self.bottom = self.own_bias = None

    def begin_units(self, weight: Tensor, inputs: int, units: int, *, bias: bool) -> None:
        """Add units, and inputs that the layer did not have, to a layer that computes with this weight; draw them."""
        outputs, before, *taps = weight.shape
        self.set_identity()
        if inputs:
            self.right = nn.Parameter(weight.new_empty(outputs, inputs, *taps))
        if units:
            self.bottom = nn.Parameter(weight.new_empty(units, before + inputs, *taps))
            self.own_bias = nn.Parameter(weight.new_empty(units)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """New units as PyTorch starts a layer; what old ones read of new ones is small."""
        if self.right is not None:
            nn.init.normal_(self.right, 0.0, SMALL)
        if self.bottom is not None:
            bound = self.bottom[0].numel() ** -0.5
            nn.init.uniform_(self.bottom, -bound, bound)
            if self.own_bias is not None:
                nn.init.uniform_(self.own_bias, -bound, bound)

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        if "earlier" in state:
            self.earlier.copy_(state["earlier"])
        for key in ("right", "bottom", "own_bias") if state else ():
            given, own = state.get(key), getattr(self, key)
            if given is None or own is None or own.shape != given.shape:
                made = None if given is None else nn.Parameter(torch.empty_like(given, device=self.earlier.device))
                setattr(self, key, made)

    def weight(self, weight: Tensor) -> Tensor:
        wide = weight if self.right is None else torch.cat([weight, self.right], dim=1)
        return wide if self.bottom is None else torch.cat([wide, self.bottom])

    def bias(self, bias: Tensor | None) -> Tensor | None:
        return bias if bias is None or self.own_bias is None else torch.cat([bias, self.own_bias])

    def weight_flops(self) -> int:
        """Tensors are put side by side; nothing is computed."""
        return 0

    def tasks_before(self) -> int | None:
        return int(self.earlier)

    @property
    def units(self) -> int:
        return 0 if self.bottom is None else len(self.bottom)

    def describe(self) -> dict[str, Option]:
        return {"kind": "block", "units": self.units}


class GrowingBank(TaskBank):
    """A layer that grows: a task computes with what it and all tasks before it have added."""

    shares_batches = False
    reads_earlier = True

    def __init__(self, link: Link, place: int, norm: TaskBank | None, *args: Any) -> None:
        super().__init__(link.layer, *args)
        self.place, self.positions = place, link.positions  # in the chain; inputs per unit of the layer before
        self._norm = (norm,)  # in a tuple: it is a submodule of the network, not of this bank

    @property
    def norm(self) -> TaskBank | None:
        """The bank of the BatchNorm that reads the layer's output."""
        return self._norm[0]

    def tensors_of(self, row: Row) -> tuple[Tensor, Tensor | None]:
        return self.tensors_through([*self.rows_before(row), row])

    def rows_before(self, row: Row) -> list[Row]:
        """Rows of the tasks before one."""
        rows = list(self.registry.rows.values())
        return rows[: rows.index(row)]

    def tensors_through(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor | None]:
        """Weight and bias with what these tasks have added."""
        layer = cast(Layer, self.layer)
        weight, bias = cast(Tensor, layer.weight), layer.bias
        for row in rows:
            block = self.transform(row)
            weight, bias = block.weight(weight), block.bias(bias)
        return weight, bias


class GrowingHead(Adopting, nn.Linear):
    """A head that takes the number of inputs that a state has."""

    def resize_inputs(self, inputs: int) -> None:
        self.in_features = inputs
        self.weight = nn.Parameter(self.weight.new_empty(self.out_features, inputs))

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        if "weight" in state and state["weight"].shape[-1] != self.in_features:
            self.resize_inputs(state["weight"].shape[-1])


class GrowingNorm(Adopting):
    """A BatchNorm that takes the number of channels that a state has."""

    num_features: int

    def resize(self, channels: int) -> None:
        """More channels get the values of a new BatchNorm, those that were there keep theirs."""
        before = {key: tensor for key, tensor in self.state_dict().items() if tensor.dim()}
        self.num_features = channels
        for key, tensor in before.items():
            wide = tensor.new_full((channels,), float(key in ("weight", "running_var")))
            wide[: len(tensor)] = tensor[:channels]
            setattr(self, key, nn.Parameter(wide) if key in self._parameters else wide)

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        sizes = {len(tensor) for tensor in state.values() if tensor.dim()}
        if sizes and sizes != {self.num_features}:
            self.resize(sizes.pop())


class GrowingNorm1d(GrowingNorm, nn.BatchNorm1d):
    pass


class GrowingNorm2d(GrowingNorm, nn.BatchNorm2d):
    pass


class GrowingNorm3d(GrowingNorm, nn.BatchNorm3d):
    pass


GROWING_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: GrowingNorm1d, nn.BatchNorm2d: GrowingNorm2d, nn.BatchNorm3d: GrowingNorm3d,
}  # fmt: skip


def _growing_norm(pattern: nn.BatchNorm2d) -> nn.Module:
    made = GROWING_NORMS[type(pattern)](
        pattern.num_features, pattern.eps, pattern.momentum, pattern.affine, pattern.track_running_stats
    )
    made.load_state_dict(pattern.state_dict())
    return made


def let_grow(network: nn.Module, links: Sequence[Link]) -> None:
    """Give the layers of an adapted chain without tasks, all but the last, which is the head, banks that grow."""
    banks = {bank.layer: bank for _, bank in named_banks(network)}
    by_name = {name: bank for name, bank in named_banks(network)}
    *hidden, last = links
    if last.layer not in banks or not isinstance(last.layer, nn.Linear):
        raise UserError(f"only a chain that ends in its linear head can grow; this one ends in {last.name}")
    new: dict[nn.Module, nn.Module] = {}
    for place, link in enumerate(hidden):
        norm = by_name.get(link.norm or "")  # one without parameters and statistics has no bank
        if norm is not None:
            if type(norm.layer) not in GROWING_NORMS:
                raise UserError(f"{link.norm} cannot grow: it is a {type(norm.layer).__name__}, not a plain BatchNorm")
            norm.make = partial(_growing_norm, cast(nn.BatchNorm2d, norm.layer))
        new[link.layer] = GrowingBank(link, place, norm, registry_of(network), "transforms", "weight", Block)
    head = last.layer
    banks[head].make = partial(GrowingHead, head.in_features, head.out_features, head.bias is not None)
    replace_modules(network, new)


def growing_banks(network: nn.Module) -> list[GrowingBank]:
    """The layers that grow, from input to output."""
    found = [bank for _, bank in named_banks(network) if isinstance(bank, GrowingBank)]
    return sorted(found, key=lambda bank: bank.place)


@torch.no_grad()
def add_units(network: nn.Module, task: str, units: Sequence[int]) -> None:
    """Let a new task add so many units to each layer; what it has of its own begins anew.

    Normalisation starts from the previous task's, the head is drawn.
    """
    row, banks = registry_of(network).row(task), growing_banks(network)
    gained, width = 0, 0
    for bank, more in zip(banks, units, strict=True):
        earlier = bank.rows_before(row)
        weight, bias = bank.tensors_through(earlier)
        block = cast(Block, bank.task(row))
        block.begin_units(weight, gained * bank.positions, more, bias=bias is not None)
        block.earlier.fill_(len(earlier))
        gained, width = more, len(weight) + more
        if bank.norm is not None:
            norm = cast(GrowingNorm, bank.norm.task(row))
            start = bank.norm.task(earlier[-1]) if earlier else bank.norm.layer
            norm.load_state_dict(start.state_dict())
            norm.resize(width)
    head_bank = next(bank for _, bank in named_banks(network) if bank.part == "heads")
    head = cast(GrowingHead, head_bank.task(row))
    head.resize_inputs(width * (cast(nn.Linear, head_bank.layer).in_features // outputs_before(banks[-1])))
    head.reset_parameters()


def outputs_before(bank: GrowingBank) -> int:
    """Units that a layer had before any task came."""
    return len(cast(Layer, bank.layer).weight)


def units_of(network: nn.Module, task: str) -> list[int]:
    """How many units a task has added to each layer, from input to output."""
    row = registry_of(network).row(task)
    return [cast(Block, bank.task(row)).units for bank in growing_banks(network)]


def take_state(network: nn.Module, task: str, state: Mapping[str, Tensor]) -> None:
    """Give a task back what `task_state` took of it, whatever its size is now."""
    row = registry_of(network).row(task)
    for name, bank in named_banks(network):
        own = {key.removeprefix(f"{name}."): tensor for key, tensor in state.items() if key.startswith(f"{name}.")}
        bank.task(row).load_state_dict(own)
