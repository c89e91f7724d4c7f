"""The verbs on a whole model: add, select, train, remove, save and load tasks."""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping

from torch import Tensor, nn

from eftgan.adapters.bank import PARTS, Part, Row, TaskBank, check_task_name, named_banks, registry_of
from eftgan.errors import UserError
from eftgan.tensors import read_tensors, tensors_digest, write_tensors

FORMAT = "eftgan-task-1"
INITS = ("previous", "identity", "random")


def task_names(model: nn.Module) -> list[str]:
    """Names of the model's tasks in the order they were added."""
    return list(registry_of(model).rows)


def add_task(
    model: nn.Module,
    name: str,
    init: str = "previous",
    *,
    share: Collection[Part] = (),
    head_size: int | None = None,
) -> None:
    """Give the model a further task and select it.

    init: where transforms and normalisation start: "previous" (the last task: forward transfer; identity if there
    is none), "identity" (normalisation as in the first task), "random", or the name of an earlier task. Heads
    start fresh. share: parts that the task uses together with the previous one instead of owning a copy.
    head_size: outputs of the new heads (default: as many as the network came with).
    """
    registry = registry_of(model)
    check_task_name(name)
    if name in registry.rows:
        raise UserError(f"task {name!r} exists already; the model has: {', '.join(registry.rows)}")
    if init not in INITS and init not in registry.rows:
        known = ", ".join([*INITS, *registry.rows])
        raise UserError(f"init {init!r} is neither a way to start nor a task of this model; choose from: {known}")
    rows = list(registry.rows.values())
    row: Row = {part: registry.new_key() for part in PARTS}
    if rows:
        row.update({part: rows[-1][part] for part in share})
    source = rows[-1] if init == "previous" and rows else registry.rows.get(init)
    modules = {}
    for bank_name, bank in named_banks(model):
        if row[bank.part] == registry.new_key():
            modules[bank_name] = _start(bank, init, source, rows[0] if rows else None, head_size)
    _attach(model, name, row, modules)
    select_task(model, name)


def _start(bank: TaskBank, init: str, source: Row | None, first: Row | None, head_size: int | None) -> nn.Module:
    """A new task's module for one bank."""
    module = bank.new_module()
    if bank.part == "heads":
        if first is not None or head_size not in (None, head_outputs(module)):
            resize_head(module, head_size or head_outputs(module))
        return module
    if init == "random":
        module.reset_parameters()
        return module
    if source is None and bank.part == "norms":
        source = first
    if source is not None:
        module.load_state_dict(bank.tasks[source[bank.part]].state_dict())
    return module


def head_outputs(head: nn.Module) -> int:
    """Number of outputs of a convolution or linear layer that serves as a head."""
    return head.out_channels if isinstance(head, nn.Conv2d) else head.out_features


def resize_head(head: nn.Module, outputs: int) -> None:
    """Give a head another number of outputs and fresh weights."""
    if isinstance(head, nn.Conv2d):
        head.out_channels = outputs
    else:
        head.out_features = outputs
    head.weight = nn.Parameter(head.weight.new_empty(outputs, *head.weight.shape[1:]))
    if head.bias is not None:
        head.bias = nn.Parameter(head.bias.new_empty(outputs))
    head.reset_parameters()


def _attach(model: nn.Module, name: str, row: Row, modules: Mapping[str, nn.Module]) -> None:
    registry = registry_of(model)
    for bank_name, bank in named_banks(model):
        if bank_name in modules:
            bank.tasks[row[bank.part]] = modules[bank_name]
    registry.rows[name] = row
    registry.made += 1


def remove_task(model: nn.Module, name: str) -> None:
    """Take a task out of the model. If it was active, the base network alone is active afterwards."""
    registry = registry_of(model)
    row = registry.row(name)
    del registry.rows[name]
    kept = {(part, key) for other in registry.rows.values() for part, key in other.items()}
    for _, bank in named_banks(model):
        if (bank.part, row[bank.part]) not in kept:
            del bank.tasks[row[bank.part]]
    active = registry.active if isinstance(registry.active, tuple) else (registry.active,)
    if any(each is row for each in active):
        registry.active = None


def select_task(model: nn.Module, name: str | tuple[str, ...] | None) -> None:
    """Make a task active; None for the base network; a tuple for equal chunks of the batch, one task each."""
    registry = registry_of(model)
    if name is None:
        registry.active = None
    elif isinstance(name, tuple):
        registry.active = tuple(registry.row(each) for each in name)
    else:
        registry.active = registry.row(name)


@contextlib.contextmanager
def using_task(model: nn.Module, name: str | tuple[str, ...] | None) -> Iterator[nn.Module]:
    """Select a task for a block; the one selected before comes back, also after an exception."""
    registry = registry_of(model)
    before = registry.active
    select_task(model, name)
    try:
        yield model
    finally:
        registry.active = before


def train_only(model: nn.Module, name: str, *, shared: bool = False) -> list[nn.Parameter]:
    """Let gradients flow into one task's modules (and the shared layers, if asked) and into nothing else.

    Returns the trainable parameters: what an optimizer should see.
    """
    row = registry_of(model).row(name)
    model.requires_grad_(shared)
    for _, bank in named_banks(model):
        bank.tasks.requires_grad_(False)
        if bank.mode == "replace":
            bank.layer.requires_grad_(False)  # only a pattern: it takes no part in the forward
        bank.tasks[row[bank.part]].requires_grad_(True)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


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
    inside = tuple(f"{bank_name}.tasks." for bank_name, _ in named_banks(model))
    return {key: tensor for key, tensor in model.state_dict().items() if not key.startswith(inside)}


def load_shared(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put theta back; the tensors must be exactly those of `shared_state`."""
    _check_tensors("the shared weights", shared_state(model), state)
    model.load_state_dict(state, strict=False)


def load_task(model: nn.Module, name: str, state: Mapping[str, Tensor]) -> None:
    """Put tau_t back, as a new task or over the task of that name. Nothing changes unless everything fits."""
    registry = registry_of(model)
    check_task_name(name)
    known = name in registry.rows
    row = registry.rows[name] if known else {part: registry.new_key() for part in PARTS}
    modules, expected = {}, {}
    for bank_name, bank in named_banks(model):
        module = bank.new_module()
        weight = state.get(f"{bank_name}.weight")
        if bank.part == "heads" and weight is not None and weight.ndim and weight.shape[0]:
            resize_head(module, weight.shape[0])
        modules[bank_name] = module
        expected.update({f"{bank_name}.{key}": tensor for key, tensor in module.state_dict().items()})
    _check_tensors(f"task {name!r}", expected, state)
    for bank_name, module in modules.items():
        module.load_state_dict({key: state[f"{bank_name}.{key}"] for key in module.state_dict()})
    if known:
        for bank_name, bank in named_banks(model):
            bank.tasks[row[bank.part]].load_state_dict(modules[bank_name].state_dict())
    else:
        _attach(model, name, row, modules)


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
        raise UserError(
            f"{path}: not a task file of this version (format {metadata.get('format')!r}, not {FORMAT!r})"
        )
    own = fingerprint(model)
    if metadata.get("base") != own:
        raise UserError(
            f"{path}: made for another base: its fingerprint is {metadata.get('base')}, this model's {own}"
        )
    name = name or metadata.get("task", "")
    if name in registry_of(model).rows:
        raise UserError(f"{path}: task {name!r} exists already in this model; remove it or give another name")
    load_task(model, name, state)
    return name
