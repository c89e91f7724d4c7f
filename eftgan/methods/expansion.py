"""What dynamically expandable networks do to the units of layers that grow: shrink, select, drop, measure."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from eftgan.adapters import registry_of
from eftgan.adapters.growing import GrowingBank, growing_banks
from eftgan.adapters.units import arrange_units, own_blocks, pieces_of
from eftgan.methods.heads import head_of


@torch.no_grad()
def shrink(weight: Tensor, by: float) -> None:
    """The proximal map of by * |w|_1: every entry goes towards 0, and stays there."""
    weight.copy_(weight.sign() * (weight.abs() - by).clamp_min(0))


@torch.no_grad()
def shrink_rows(weight: Tensor, by: float) -> None:
    """The proximal map of by * sum of |row|_2: whole rows go towards 0."""
    length = weight.flatten(1).norm(dim=1).view(-1, *[1] * (weight.dim() - 1))
    weight.mul_((1 - by / length.clamp_min(torch.finfo(weight.dtype).tiny)).clamp_min(0))


@torch.no_grad()
def selected_units(network: nn.Module, task: str) -> list[Tensor]:
    """By layer, from input to output: True for the units that the task's head reads, and all that these read."""
    row, found = registry_of(network).row(task), []
    readers = cast(Tensor, head_of(network, task).weight)
    for bank in reversed(growing_banks(network)):
        weight = bank.tensors_of(row)[0]
        read = (readers != 0).flatten(2).any(2) if readers.dim() > 2 else readers != 0
        selected = read.any(0).view(len(weight), -1).any(1)  # a unit of a flattened map has many positions
        found.append(selected.cpu())
        readers = weight[selected]
    return found[::-1]


@torch.no_grad()
def drop_dead_units(network: nn.Module, task: str) -> None:
    """Take away what the task has added and what reads nothing."""
    own = []
    for bank, block in zip(growing_banks(network), own_blocks(network, task), strict=True):
        alive = [] if block.bottom is None else (block.bottom != 0).flatten(1).any(1).nonzero().flatten().tolist()
        first = len(bank.tensors_of(registry_of(network).row(task))[0]) - block.units
        own.append([first + unit for unit in alive])
    arrange_units(network, task, own)


@torch.no_grad()
def drifts(network: nn.Module, bank: GrowingBank, anchor: Mapping[str, Tensor]) -> Tensor:
    """|w_i - w_i*|_2 of all weights that a unit reads by, for the units of a layer that were there."""
    squares: dict[int, Tensor] = {}
    for piece in pieces_of(network, bank, list(bank.registry.rows.values())):
        if piece.inputs is not None and piece.name in anchor:
            moved = (piece.parameter - anchor[piece.name]).flatten(1).square().sum(1)
            for unit, square in enumerate(moved, piece.units.start):
                squares[unit] = squares.get(unit, square.new_zeros(())) + square
    return torch.stack([squares[unit] for unit in sorted(squares)]).sqrt()
