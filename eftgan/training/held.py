"""Entries of trainable parameters that a task must leave alone: single weights of a layer, say.

Gradients of zero would not do: momentum and weight decay move a weight without any. So the entries are put back after
every step, which is exact whatever the optimizer does.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from eftgan.methods import Method, Networks


def _masked(method: Method, role: str, network: nn.Module, task: str) -> Iterator[tuple[str, nn.Parameter, Tensor]]:
    """Parameters that the task may write in part, with where it may."""
    parameters = dict(network.named_parameters())
    for name, free in (method.writable(role, network, task) or {}).items():
        if name not in parameters:
            raise ValueError(f"{method.name}: the {role} has no parameter {name!r} to be written")
        if free.dtype != torch.bool or free.shape != parameters[name].shape:
            raise ValueError(f"{method.name}: what may be written of {name!r} is not a bool tensor of its shape")
        yield name, parameters[name], free.to(parameters[name].device)


def held_entries(method: Method, networks: Networks, task: str) -> dict[str, Tensor]:
    """All entries that the task must leave alone, for a digest."""
    return {
        f"{role}: held of {name}": parameter.detach()[~free]
        for role, network in networks.items()
        for name, parameter, free in _masked(method, role, network, task)
    }


class Held:
    """Remembers the held entries as they are now, and puts them back."""

    def __init__(self, method: Method, networks: Networks, task: str) -> None:
        self._saved = {
            role: [(p, free, p.detach().clone()) for _, p, free in _masked(method, role, network, task)]
            for role, network in networks.items()
        }

    @torch.no_grad()
    def put_back(self, role: str) -> None:
        for parameter, free, saved in self._saved[role]:
            parameter.copy_(torch.where(free, parameter, saved))
