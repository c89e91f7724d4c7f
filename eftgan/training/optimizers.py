"""Optimizers over a method's groups of parameters."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from eftgan.methods import Group, Method


def groups_of(method: Method, role: str, parameters: list[nn.Parameter]) -> list[Group]:
    """The method's groups, checked to hold every trainable parameter."""
    groups = method.groups(role, parameters)
    if {p for group in groups for p in group.parameters} != set(parameters):
        raise ValueError(f"{method.name}: the groups of the {role} are not just its {len(parameters)} parameters")
    return groups


def make_sgd(groups: Sequence[Group], rate: float, *, momentum: float, decay: float) -> torch.optim.SGD:
    """SGD; what a group leaves open is as given here."""
    own = [_group(each, weight_decay=each.decay, momentum=each.momentum) for each in groups]
    return torch.optim.SGD(own, rate, momentum, weight_decay=decay)


def make_adam(
    groups: Sequence[Group], rate: float, betas: tuple[float, float], decay: float = 0.0, *, fused: bool = False
) -> torch.optim.Adam:
    """Adam; what a group leaves open is as given here. fused: in one pass over the weights."""
    firsts = [betas[0] if each.momentum is None else each.momentum for each in groups]
    own = [
        _group(each, weight_decay=each.decay, betas=(first, betas[1]))
        for each, first in zip(groups, firsts, strict=True)
    ]
    return torch.optim.Adam(own, rate, betas, weight_decay=decay, fused=fused or None)


def _group(group: Group, **settings: Any) -> dict[str, Any]:
    given = {key: value for key, value in settings.items() if value is not None}
    return {"params": group.parameters, "rate": group.rate, **given}


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its multiple of the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]
