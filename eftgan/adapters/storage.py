"""What belongs to a task and what is shared, as tensors: taken out, put back, written to files."""

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from eftgan.adapters.bank import TaskBank, named_banks, registry_of, unwrap
from eftgan.adapters.config import PARTS
from eftgan.adapters.layers import outputs_in, resize_head
from eftgan.adapters.tasks import attach_task
from eftgan.errors import UserError
from eftgan.names import check_task_name
from eftgan.tensors import read_tensors, tensors_digest, write_tensors

FORMAT = "eftgan-task-1"


def task_state(model: nn.Module, name: str) -> dict[str, Tensor]:
    """Just tau_t: the tensors of one task, named by layer."""
    row = registry_of(model).row(name)
    return {
        f"{bank_name}.{key}": tensor
        for bank_name, bank in named_banks(model)
        for key, tensor in bank.tasks[row[bank.part]].state_dict().items()
    }


def shared_state(model: nn.Module) -> dict[str, Tensor]:
    """Just theta: every tensor that belongs to no task."""
    network = unwrap(model)
    modules = network.named_modules(remove_duplicate=False)  # state_dict too has an entry for each of several names
    inside = tuple(f"{name}.tasks." for name, module in modules if isinstance(module, TaskBank))
    return {key: tensor for key, tensor in network.state_dict().items() if not key.startswith(inside)}


def load_shared(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put theta back; the tensors must be exactly those of `shared_state`."""
    _check_tensors("the shared weights", shared_state(model), state)
    unwrap(model).load_state_dict(state, strict=False)


def load_task(model: nn.Module, name: str, state: Mapping[str, Tensor]) -> None:
    """Put tau_t back, as a new task or over the task of that name. Nothing changes unless everything fits."""
    registry = registry_of(model)
    check_task_name(name)
    if name in registry.rows:
        _load_over(model, name, state)
        return
    modules, expected = {}, {}
    for bank_name, bank in named_banks(model):
        module = modules[bank_name] = bank.new_module()
        weight = state.get(f"{bank_name}.weight")
        if bank.part == "heads" and weight is not None and (outputs := outputs_in(module, weight)):
            resize_head(module, outputs)
        expected.update({f"{bank_name}.{key}": tensor for key, tensor in module.state_dict().items()})
    _check_tensors(f"task {name!r}", expected, state)
    for bank_name, module in modules.items():
        module.load_state_dict({key: state[f"{bank_name}.{key}"] for key in module.state_dict()})
    attach_task(model, name, {part: registry.new_key() for part in PARTS}, modules)


def _load_over(model: nn.Module, name: str, state: Mapping[str, Tensor]) -> None:
    """Load into the modules of a task; those that it shares must stay as they are."""
    registry = registry_of(model)
    row, own = registry.row(name), task_state(model, name)
    _check_tensors(f"task {name!r}", own, state)
    for bank_name, bank in named_banks(model):
        others = [n for n, other in registry.rows.items() if n != name and other[bank.part] == row[bank.part]]
        changed = any(
            not torch.equal(tensor, state[f"{bank_name}.{key}"].to(tensor))
            for key, tensor in bank.tasks[row[bank.part]].state_dict().items()
        )
        if others and changed:
            raise UserError(
                f"task {name!r} shares its {bank.part} with {', '.join(others)}, and other ones are to be loaded: "
                "that would change them all; remove the task first, or load under another name"
            )
    with torch.no_grad():
        for key, tensor in own.items():
            tensor.copy_(state[key])


def _check_tensors(what: str, expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    for key in expected:
        if key not in given:
            raise UserError(f"{what} does not fit this model: tensor {key!r} is missing")
        if expected[key].shape != given[key].shape:
            raise UserError(
                f"{what} does not fit this model: tensor {key!r} has shape {tuple(given[key].shape)}, "
                f"expected {tuple(expected[key].shape)}"
            )
    if extra := sorted(set(given) - set(expected)):
        raise UserError(f"{what} does not fit this model: it has no layer for tensor {extra[0]!r}")


def fingerprint(model: nn.Module) -> str:
    """Digest of theta: a task's file belongs to exactly one."""
    return tensors_digest(shared_state(model))


def save_task(model: nn.Module, name: str, path: str | os.PathLike) -> None:
    """Write one task to a small safetensors file that knows which base it belongs to."""
    config = registry_of(model).config
    metadata = {
        "format": FORMAT,
        "task": name,
        "a": str(config.a),
        "b": str(config.b),
        "mode": config.mode,
        "base": fingerprint(model),
    }
    write_tensors(path, task_state(model, name), metadata)


def load_task_file(model: nn.Module, path: str | os.PathLike, name: str | None = None) -> str:
    """Add the task of a file to the model (under another name, if given) and return its name."""
    state, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path}: not a task file of this version (format {metadata.get('format')!r}, not {FORMAT!r})")
    mode = registry_of(model).config.mode
    if metadata.get("mode") != mode:
        raise UserError(f"{path}: made for mode {metadata.get('mode')}, this model's adapters are {mode}")
    own = fingerprint(model)
    if metadata.get("base") != own:
        raise UserError(f"{path}: made for another base: its fingerprint is {metadata.get('base')}, this model's {own}")
    name = name or metadata.get("task", "")
    if name in registry_of(model).rows:
        raise UserError(f"{path}: task {name!r} exists already in this model; remove it or give another name")
    load_task(model, name, state)
    return name
