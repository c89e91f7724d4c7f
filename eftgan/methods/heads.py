"""A classifier's heads and the features that they read."""

import contextlib
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from eftgan.adapters import TaskBank, named_banks, registry_of, task_names
from eftgan.adapters.bank import unwrap
from eftgan.adapters.layers import Layer, outputs_of


def head_bank_name(network: nn.Module) -> str:
    """Where the output layers are: the last bank whose modules are wholly per task."""
    return [name for name, bank in named_banks(network) if bank.part == "heads"][-1]


def head_bank(network: nn.Module) -> TaskBank:
    """The bank of the output layers."""
    bank = unwrap(network).get_submodule(head_bank_name(network))
    assert isinstance(bank, TaskBank)
    return bank


def head_of(network: nn.Module, task: str) -> Layer:
    """The output layer of one task."""
    return cast(Layer, head_bank(network).tasks[registry_of(network).row(task)["heads"]])


@torch.no_grad()
def carry_head(network: nn.Module) -> None:
    """Let the newest task's output layer start from the one before it, where both have as many outputs."""
    *_, previous, newest = (head_of(network, task) for task in task_names(network))
    if outputs_of(previous) == outputs_of(newest):
        newest.load_state_dict(previous.state_dict())


class HeadInput:
    """Where `head_input` leaves what the head has read."""

    features: Tensor  # (B, F), with graph; never in less than single precision


@contextlib.contextmanager
def head_input(network: nn.Module) -> Iterator[HeadInput]:
    """Note the pre-output features of every forward inside the block; works for any network."""
    noted = HeadInput()

    def note(bank: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        read = inputs[0]  # in 16 bits where the forward is autocast, which other heads and statistics are not
        noted.features = read.to(torch.promote_types(read.dtype, torch.float32))

    hook = head_bank(network).register_forward_pre_hook(note)
    try:
        yield noted
    finally:
        hook.remove()


@torch.no_grad()
def features_of(network: nn.Module, inputs: Tensor) -> Tensor:
    """Pre-output features (B, F) of a network that does not train."""
    with head_input(network) as noted:
        network(inputs)
    return noted.features


def train_heads(network: nn.Module, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """Let the heads of all tasks train as well: the trainable parameters with theirs."""
    heads = list(head_bank(network).tasks.parameters())
    for parameter in heads:
        parameter.requires_grad_(True)
    return list(dict.fromkeys([*parameters, *heads]))
