"""Units of layers that grow, one by one: which parameters hold them, and a task with other units of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from eftgan.adapters.bank import Row, named_banks, registry_of
from eftgan.adapters.growing import Block, GrowingBank, GrowingHead, GrowingNorm, growing_banks, outputs_before
from eftgan.adapters.layers import Layer

NEW = -1  # in the place of the unit that another one is a copy of


@dataclass(frozen=True)
class Piece:
    """A parameter that stands in the weight, or the bias, with which a task computes."""

    name: str  # in the network
    parameter: nn.Parameter
    units: slice  # its rows there
    inputs: slice | None  # its columns; none: of the bias

    def __contains__(self, unit: int) -> bool:
        return bool(self.units.start <= unit < self.units.stop)


def pieces_of(network: nn.Module, bank: GrowingBank, rows: Sequence[Row]) -> Iterator[Piece]:
    """The layer's own parameters and what these tasks have added to them."""
    names = {parameter: name for name, parameter in network.named_parameters()}
    layer = cast(Layer, bank.layer)
    outputs, inputs = layer.weight.shape[:2]
    found: list[tuple[nn.Parameter | None, slice, slice | None]] = [
        (cast(nn.Parameter, layer.weight), slice(0, outputs), slice(0, inputs)),
        (cast(nn.Parameter | None, layer.bias), slice(0, outputs), None),
    ]
    for row in rows:
        block = cast(Block, bank.task(row))
        wide = inputs + (0 if block.right is None else block.right.shape[1])
        wide = wide if block.bottom is None else block.bottom.shape[1]
        found += [
            (block.right, slice(0, outputs), slice(inputs, wide)),
            (block.bottom, slice(outputs, outputs + block.units), slice(0, wide)),
            (block.own_bias, slice(outputs, outputs + block.units), None),
        ]
        outputs, inputs = outputs + block.units, wide
    for parameter, units, columns in found:
        if parameter is not None:
            yield Piece(names[parameter], parameter, units, columns)


def all_pieces(network: nn.Module) -> Iterator[tuple[GrowingBank, Piece]]:
    """Those of all layers and tasks, each with its layer."""
    for bank in growing_banks(network):
        for piece in pieces_of(network, bank, list(bank.registry.rows.values())):
            yield bank, piece


def own_blocks(network: nn.Module, task: str) -> list[Block]:
    """What a task has added to each layer, from input to output."""
    row = registry_of(network).row(task)
    return [cast(Block, bank.task(row)) for bank in growing_banks(network)]


@torch.no_grad()
def arrange_units(network: nn.Module, task: str, sources: Sequence[Sequence[int]]) -> None:
    """Give a task other units of its own: for each of a layer, which of all its units it is a copy of, or NEW.

    Units that are left out go. A copy of an earlier unit reads what that one reads; what the task's own units and its
    head read of the original, they then read of the copy alone. Earlier units read little of copies and new units.
    """
    row, banks = registry_of(network).row(task), growing_banks(network)
    gained: Sequence[int] = []
    width = 0
    for bank, own in zip(banks, sources, strict=True):
        old, _ = bank.tensors_through(bank.rows_before(row))
        whole, bias = bank.tensors_of(row)
        block, outputs = cast(Block, bank.task(row)), len(old)
        block.begin_units(old, len(gained) * bank.positions, len(own), bias=bias is not None)
        copies = [(place, unit) for place, unit in enumerate(own) if unit != NEW]
        if block.right is not None:
            kept = [(place, unit) for place, unit in enumerate(gained) if unit >= width]
            _copy(block.right.transpose(0, 1), whole[:outputs].transpose(0, 1), kept, bank.positions)
        if block.bottom is not None and copies:
            places, units = map(list, zip(*copies, strict=True))
            drawn = block.bottom[places]
            block.bottom[places] = _rewired(whole[units], drawn, old.shape[1], gained, bank.positions)
        if block.own_bias is not None and bias is not None:
            _copy(block.own_bias, bias, copies)
        if bank.norm is not None:
            _arrange_norm(cast(GrowingNorm, bank.norm.task(row)), outputs, len(own), copies)
        gained, width = own, outputs
    _arrange_head(network, row, banks[-1], gained, width)


def _arrange_norm(norm: GrowingNorm, outputs: int, own: int, copies: Sequence[tuple[int, int]]) -> None:
    before = {key: tensor.clone() for key, tensor in norm.state_dict().items() if tensor.dim()}
    norm.resize(outputs)
    norm.resize(outputs + own)
    for key, tensor in norm.state_dict().items():
        if key in before:
            _copy(tensor, before[key], [(outputs + place, unit) for place, unit in copies])


def _arrange_head(network: nn.Module, row: Row, last: GrowingBank, gained: Sequence[int], width: int) -> None:
    bank = next(bank for _, bank in named_banks(network) if bank.part == "heads")
    head = cast(GrowingHead, bank.task(row))
    positions = cast(nn.Linear, bank.layer).in_features // outputs_before(last)
    before, bias = head.weight.clone(), None if head.bias is None else head.bias.clone()
    head.resize_inputs((width + len(gained)) * positions)
    head.reset_parameters()
    head.weight.copy_(_rewired(before, head.weight, width * positions, gained, positions))
    if bias is not None:
        head.bias.copy_(bias)


def _rewired(whole: Tensor, drawn: Tensor, old: int, gained: Sequence[int], positions: int) -> Tensor:
    """What units read that read `whole`, when the layer before has other units: of its copies, not of the originals.

    drawn: what they read of new ones. old: the inputs that are not of the task.
    """
    wide = drawn.clone()
    wide[:, :old] = whole[:, :old]
    known = [(old // positions + place, unit) for place, unit in enumerate(gained) if unit != NEW]
    _copy(wide.transpose(0, 1), whole.transpose(0, 1), known, positions)
    for _, unit in known:
        if unit * positions < old:
            wide[:, unit * positions : (unit + 1) * positions] = 0.0
    return wide


def _copy(to: Tensor, source: Tensor, pairs: Sequence[tuple[int, int]], each: int = 1) -> None:
    """Copy rows, in groups of so many, from places to places: (to, from)."""
    for place, unit in pairs:
        to[place * each : (place + 1) * each] = source[unit * each : (unit + 1) * each]
