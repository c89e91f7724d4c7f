"""Between tasks: a network whose own tensors are a weighted mean of several tasks', or of a task's and the base's.

A task is its tensors tau_t (`task_state`), so a mix of tasks is the mean of theirs, tensor by tensor: transforms, the
weights and running statistics of normalisation, heads. The base is a point in the same space: neutral transforms, and
normalisation and heads of the first task, or those that a network had before any task, if it had been trained by then.
The strength s of a task is the mix s tau_t + (1 - s) base.
"""

import math
from collections.abc import Collection, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from eftgan.adapters.bank import TaskBank, named_banks, registry_of
from eftgan.adapters.config import PARTS, Part
from eftgan.adapters.merge import inference_network, only_task
from eftgan.adapters.storage import load_task, task_state
from eftgan.adapters.tasks import own_transforms, task_names
from eftgan.adapters.transforms import Transform
from eftgan.errors import UserError

BASE = None  # stands among the names of tasks for the base
Shares: TypeAlias = Mapping[str | None, float]  # of each task, and of the base, in a mix


def at_strength(shares: Shares, strength: float) -> dict[str | None, float]:
    """The mix between the base (strength 0) and another mix (1); beyond 1 it goes on in the same direction."""
    weaker = {name: strength * share for name, share in shares.items()}
    return weaker | {BASE: weaker.get(BASE, 0.0) + 1.0 - strength}


def between(start: Shares, end: Shares, way: float) -> dict[str | None, float]:
    """The mix at a point of the way (0 to 1) from one to another."""
    names = dict.fromkeys([*start, *end])
    return {name: (1 - way) * start.get(name, 0.0) + way * end.get(name, 0.0) for name in names}


def normalised(shares: Shares) -> dict[str | None, float]:
    """Shares that sum up to 1, without those of 0. Single ones may be negative: that leads away from a task."""
    total = math.fsum(shares.values())
    if not math.isfinite(total) or total <= 0:
        raise UserError(f"the shares of a mix must be numbers with a sum above 0, got {list(shares.values())}")
    return {name: share / total for name, share in shares.items() if share != 0}


def base_state(model: nn.Module, parts: Collection[Part] = PARTS, *, trained: bool = False) -> dict[str, Tensor]:
    """Neutral transforms, and the first task's normalisation and heads.

    parts: those that every task owns. Transforms that all tasks share are no task's, and stay. trained: the base had
    been trained before the first task, so that its own normalisation and heads are the ones to take.
    """
    row = registry_of(model).row(task_names(model)[0])
    state: dict[str, Tensor] = {}
    for bank_name, bank in named_banks(model):
        neutral, module = bank.part in parts if bank.part == "transforms" else trained, bank.task(row)
        module = _neutral(bank, module) if neutral else module
        state |= {f"{bank_name}.{key}": tensor for key, tensor in module.state_dict().items()}
    return state


def _neutral(bank: TaskBank, own: nn.Module) -> nn.Module:
    """A new module for a bank, in the form of one that it has: a task of an earlier version may have another."""
    module = bank.new_module()
    if isinstance(module, Transform):
        module.adopt(own.state_dict())
        module.set_identity()
    return module


def lone_task(shares: Shares) -> str | None:
    """The task that a mix is all of; None where there are more in it, or the base."""
    (first, *others) = normalised(shares)
    return None if others else first


@torch.no_grad()
def mixed_state(
    model: nn.Module, shares: Shares, parts: Collection[Part] = PARTS, *, trained: bool = False
) -> dict[str, Tensor]:
    """The tensors of a mix; those of one task alone are its own, to the bit."""
    if (task := lone_task(shares)) is not None:
        return task_state(model, task)
    require_numbers(model)
    shares = normalised(shares)
    states = {
        name: base_state(model, parts, trained=trained) if name is BASE else task_state(model, name) for name in shares
    }
    largest, *others = sorted(shares, key=lambda name: -abs(shares[name]))
    mixed = {}
    for key in dict.fromkeys(key for state in states.values() for key in state):
        each = {name: state[key] for name, state in states.items() if key in state}
        if len(each) < len(states) or len({tensor.shape for tensor in each.values()}) > 1:
            raise UserError(f"tasks with transforms or heads of other sizes cannot be mixed: {key!r} differs in shape")
        tensor = each[largest]
        mixed[key] = _mean(key, each, shares) if others and tensor.is_floating_point() else tensor  # else a counter
    return mixed


def _mean(key: str, each: Mapping[str | None, Tensor], shares: Shares) -> Tensor:
    """In double precision, so that what is the same everywhere stays the same to the bit."""
    tensors = list(each.values())
    mean = torch.stack([shares[name] * tensor.double() for name, tensor in each.items()]).sum(0)
    if key.endswith(".running_var"):  # beyond the tasks a variance could fall below 0
        mean = mean.maximum(torch.stack(tensors).amin(0).double())
    return mean.to(tensors[0].dtype)


def require_numbers(model: nn.Module) -> None:
    """Refuse a model whose tasks keep masks of bits."""
    for task in task_names(model):
        if any(transform.mask_bits() for transform in own_transforms(model, task).values()):
            raise UserError(f"task {task!r} keeps masks, and nothing lies between two masks: no strength, no mix")


def mixed_network(
    model: nn.Module, shares: Shares, parts: Collection[Part] = PARTS, *, trained: bool = False
) -> nn.Module:
    """A network for inference, as `inference_network` gives one for a task, of a mix. The model is not changed.

    shares: by task, and by BASE; divided by their sum. parts: those of which every task has its own. trained: the base
    had been trained before the first task, so that it has normalisation of its own.
    """
    if (task := lone_task(shares)) is not None:
        return inference_network(model, task)
    first = task_names(model)[0]
    alone, mix = only_task(model, first), "mix" if first != "mix" else "mixed"
    load_task(alone, mix, mixed_state(model, shares, parts, trained=trained))
    return inference_network(alone, mix)
