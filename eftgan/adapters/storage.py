"""What belongs to a task and what is shared, as tensors: taken out, put back, written to a task's file."""

import os
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from eftgan.adapters.adopting import Adopting
from eftgan.adapters.bank import TaskBank, named_banks, registry_of, unwrap
from eftgan.adapters.config import PARTS
from eftgan.adapters.layers import outputs_in, resize_head
from eftgan.adapters.taskfile import NETWORK, VALUES, TaskFile, read_task_file, write_task_file
from eftgan.adapters.tasks import attach_task
from eftgan.adapters.transforms import Transform
from eftgan.errors import UserError
from eftgan.names import check_task_name
from eftgan.tensors import tensors_digest


def task_state(model: nn.Module, name: str) -> dict[str, Tensor]:
    """Just tau_t: the tensors of one task, named by layer; not copies.

    Args:
        model: A network with adapters.
        name: The task.
    """
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
    """Put theta back.

    Args:
        model: A network with adapters.
        state: Exactly the tensors of `shared_state`.
    """
    _check_tensors("the shared weights", shared_state(model), state)
    unwrap(model).load_state_dict(state, strict=False)


def load_task(model: nn.Module, name: str, state: Mapping[str, Tensor]) -> None:
    """Put tau_t back, as a new task or over the task of that name. Nothing changes unless everything fits.

    Args:
        model: A network with the adapters that the tensors were taken from.
        name: Of the task to make or to overwrite.
        state: What `task_state` gave.
    """
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
        if isinstance(module, Adopting):
            module.adopt(_below(bank_name, state))
        expected.update({f"{bank_name}.{key}": tensor for key, tensor in module.state_dict().items()})
    _check_tensors(f"task {name!r}", expected, state)
    _check_place(name, modules.values(), len(registry.rows))
    for bank_name, module in modules.items():
        module.load_state_dict({key: state[f"{bank_name}.{key}"] for key in module.state_dict()})
    attach_task(model, name, {part: registry.new_key() for part in PARTS}, modules)


def _check_place(name: str, modules: Iterable[nn.Module], there: int) -> None:
    """Refuse a task that reads other numbers of earlier tasks than the model has."""
    for module in modules:
        before = module.tasks_before() if isinstance(module, Transform) else None
        if before not in (None, there):
            raise UserError(
                f"task {name!r} reads the {before} before it, and this model has {there} tasks: its file only makes "
                "sense after those of all tasks before it; read them together, by ClassifierRun(folder).classifier"
            )


def _below(bank_name: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(f"{bank_name}."): t for k, t in state.items() if k.startswith(f"{bank_name}.")}


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


def describe_adapters(model: nn.Module) -> dict[str, str]:
    """Kind and settings of the model's transforms, as task files state them."""
    config = registry_of(model).config
    return config.planner().describe(config) | ({"gate": config.gate} if config.gate else {})


def save_task(model: nn.Module, name: str, path: str | os.PathLike[str]) -> None:
    """Write one task to a small file that knows which base it belongs to.

    Args:
        model: A network with adapters.
        name: The task: its transforms, normalisation and heads are written, nothing shared.
        path: A `.safetensors` file, written under a temporary name and renamed.

    Examples:
        >>> save_task(net, "birds", "birds.safetensors")
        >>> remove_task(net, "birds")
        >>> load_task_file(net, "birds.safetensors")
        'birds'
    """
    states, bases = {NETWORK: task_state(model, name)}, {NETWORK: fingerprint(model)}
    write_task_file(path, name, states, bases, adapters=describe_adapters(model))


def load_task_file(model: nn.Module, path: str | os.PathLike[str], name: str | None = None) -> str:
    """Add the task of a file to the model.

    A file of several networks, as GAN training writes them, gives the one whose shared weights are this model's.

    Args:
        model: A network with the same shared weights and adapters as the one that the task was saved from.
        path: What `save_task` or training wrote.
        name: What the task is called here (default: its own name).

    Returns:
        The task's name.

    Raises:
        UserError: If the file is damaged, or belongs to other shared weights or adapters, or the name is taken.
    """
    file = read_task_file(path)
    if file.kind == "full":
        raise UserError(
            f"{path}: holds a whole network that was trained for task {file.task!r}, not a task's part of a shared "
            "one, so it cannot be added to this model"
        )
    if any(key.startswith(VALUES) for state in file.states.values() for key in state):
        raise UserError(
            f"{path}: task {file.task!r} adds to the shared weights, so its file only makes sense after those of all "
            "tasks before it; read them together, by ClassifierRun(folder).classifier(after) or "
            "GanRun(folder).generator(after)"
        )
    _check_adapters(model, path, file)
    role = _role_of(model, path, file)
    name = name or file.task
    if name in registry_of(model).rows:
        raise UserError(f"{path}: task {name!r} exists already in this model; remove it or give another name")
    load_task(model, name, file.states[role])
    return name


def _check_adapters(model: nn.Module, path: str | os.PathLike[str], file: TaskFile) -> None:
    """Refuse a file of other adapters: tensors of the same shape need not mean the same."""
    own, free = describe_adapters(model), registry_of(model).config.planner().free
    for key, made_for in file.adapters.items():
        if key not in free and own.get(key, made_for) != made_for:
            raise UserError(f"{path}: made for {key} {made_for}, this model's adapters are {own[key]}")


def _role_of(model: nn.Module, path: str | os.PathLike[str], file: TaskFile) -> str:
    """The network of a file that has this model's shared weights."""
    own = fingerprint(model)
    roles = [role for role, base in file.bases.items() if base == own]
    if len(roles) > 1:
        raise UserError(
            f"{path}: {' and '.join(roles)} have the shared weights of this model; take the one meant from "
            "read_task_file(path).states and give it to load_task"
        )
    if not roles:
        bases = " and ".join(file.bases.values()) or "missing"
        raise UserError(f"{path}: made for another base: its fingerprint is {bases}, this model's {own}")
    return roles[0]
