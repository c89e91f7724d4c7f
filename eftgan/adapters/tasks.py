"""The verbs on a whole model: add, select, train and remove tasks."""

import contextlib
from collections.abc import Collection, Iterator, Mapping

from torch import nn

from eftgan.adapters.bank import Row, TaskBank, is_distributed, named_banks, registry_of
from eftgan.adapters.config import PARTS, Part
from eftgan.adapters.layers import outputs_of, resize_head
from eftgan.adapters.transforms import Transform
from eftgan.errors import UserError
from eftgan.names import INITS, check_task_name


def task_names(model: nn.Module) -> list[str]:
    """Names of the model's tasks in the order in which they were added."""
    return list(registry_of(model).rows)


def task_modules(model: nn.Module, name: str, part: Part) -> list[nn.Module]:
    """What a task uses of one part, layer by layer."""
    key = registry_of(model).row(name)[part]
    return [bank.tasks[key] for _, bank in named_banks(model) if bank.part == part]


def add_task(
    model: nn.Module,
    name: str,
    init: str = "previous",
    *,
    share: Collection[Part] = (),
    head_size: int | None = None,
) -> None:
    """Give the model a further task and select it. Nothing of earlier tasks changes.

    Args:
        model: A network with adapters. Add tasks before it is wrapped by DistributedDataParallel.
        name: Letters, digits, `_` and `-`.
        init: Where transforms and normalisation start: `previous` (the last task: forward transfer; identity if there
            is none), `identity` (normalisation as in the first task), `random`, or the name of an earlier task.
            Heads start fresh.
        share: Parts (`transforms`, `norms`, `heads`) that the task uses together with the previous one instead of
            owning a copy.
        head_size: Outputs of the new heads (default: as many as the network came with).

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from eftgan import AdapterConfig, add_task, insert_adapters, task_names
        >>> net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
        >>> _ = net(torch.zeros(1, 3, 8, 8))  # lazy layers take their shape
        >>> _ = insert_adapters(net, AdapterConfig(a=4, b=8, heads=("3",)))
        >>> add_task(net, "cats")
        >>> add_task(net, "birds", init="cats", head_size=20)
        >>> task_names(net)
        ['cats', 'birds']
    """
    registry = registry_of(model)
    _check_new_task(model, name, init, share, head_size)
    rows = list(registry.rows.values())
    row: Row = {part: registry.new_key() for part in PARTS}
    if rows:
        row.update({part: rows[-1][part] for part in share})
    source = rows[-1] if init == "previous" and rows else registry.rows.get(init)
    modules = {}
    for bank_name, bank in named_banks(model):
        if row[bank.part] == registry.new_key():
            modules[bank_name] = _start(bank, init, source, rows[0] if rows else None, head_size)
    attach_task(model, name, row, modules)
    select_task(model, name)


def _check_new_task(model: nn.Module, name: str, init: str, share: Collection[Part], head_size: int | None) -> None:
    rows = registry_of(model).rows
    check_task_name(name)
    if name in rows:
        raise UserError(f"task {name!r} exists already; the model has: {', '.join(rows)}")
    if init not in INITS and init not in rows:
        known = ", ".join([*INITS, *rows])
        raise UserError(f"init {init!r} is neither a way to start nor a task of this model; choose from: {known}")
    if isinstance(share, str) or set(share) - set(PARTS):
        raise UserError(f"share takes some of the parts {', '.join(PARTS)}, got {share!r}")
    if head_size is not None and head_size < 1:
        raise UserError(f"a head needs at least one output, got head_size={head_size}")
    if is_distributed(model):
        raise UserError(
            f"add task {name!r} before the network is wrapped by DistributedDataParallel, which would not know "
            "its parameters"
        )


def _start(bank: TaskBank, init: str, source: Row | None, first: Row | None, head_size: int | None) -> nn.Module:
    """A new task's module for one bank."""
    module = bank.new_module()
    if bank.part == "heads":
        if first is not None or head_size is not None:
            resize_head(module, head_size or outputs_of(module))
            _reset(module)
        return module
    if init == "random":
        _reset(module)
        return module
    if source is None and bank.part == "norms":
        source = first
    if source is not None:
        module.load_state_dict(bank.tasks[source[bank.part]].state_dict())
    return module


def _reset(module: nn.Module) -> None:
    reset = module.reset_parameters  # layers, normalisations and transforms all have it
    assert callable(reset)
    reset()


def own_transforms(model: nn.Module, name: str) -> dict[str, Transform]:
    """A task's transforms and gates, by the name of their bank."""
    row = registry_of(model).row(name)
    return {bank_name: bank.transform(row) for bank_name, bank in named_banks(model) if bank.part == "transforms"}


def attach_task(model: nn.Module, name: str, row: Row, modules: Mapping[str, nn.Module]) -> None:
    """Make modules that are ready known to their banks, and the task to the model."""
    registry = registry_of(model)
    for bank_name, bank in named_banks(model):
        if bank_name in modules:
            bank.tasks[row[bank.part]] = modules[bank_name]
    registry.rows[name] = row
    registry.made += 1


@contextlib.contextmanager
def numbered(model: nn.Module, index: int) -> Iterator[None]:
    """A task added inside the block is number `index` (from 0) of its sequence; the model may lack earlier ones."""
    registry = registry_of(model)
    before, registry.made = registry.made, index
    try:
        yield
    finally:
        registry.made = max(before, registry.made)


def remove_task(model: nn.Module, name: str) -> None:
    """Take a task out of the model, with all modules that no other task uses.

    If it was active, the base network alone is active afterwards.

    Args:
        model: A network with adapters.
        name: The task.
    """
    registry = registry_of(model)
    row, banks = registry.row(name), named_banks(model)
    if any(bank.reads_earlier for _, bank in banks) and row is not list(registry.rows.values())[-1]:
        raise UserError(f"task {name!r} is read by the tasks after it; remove these first")
    del registry.rows[name]
    kept = {(part, key) for other in registry.rows.values() for part, key in other.items()}
    for _, bank in banks:
        if (bank.part, row[bank.part]) not in kept:
            del bank.tasks[row[bank.part]]
    if not registry.knows(registry.active):
        registry.active = None


def select_task(model: nn.Module, name: str | tuple[str, ...] | None) -> None:
    """Make a task active, until another one is selected; `using_task` does it for a block.

    Args:
        model: A network with adapters.
        name: A task; None for the base network; a tuple for equal chunks of the batch, one task each.
    """
    registry = registry_of(model)
    if name is None:
        registry.active = None
    elif isinstance(name, tuple | list):
        if not name:
            raise UserError("an empty tuple selects nothing; name tasks, or None for the base network")
        registry.active = tuple(registry.row(each) for each in name)
    else:
        registry.active = registry.row(name)


@contextlib.contextmanager
def using_task(model: nn.Module, name: str | tuple[str, ...] | None) -> Iterator[nn.Module]:
    """Select a task for a block; the one selected before comes back, also after an exception.

    Args:
        model: A network with adapters.
        name: As for `select_task`.

    Examples:
        >>> with torch.no_grad(), using_task(net, "cats"):
        ...     logits = net(images)
        >>> logits.shape
        torch.Size([4, 10])
    """
    registry = registry_of(model)
    before = registry.active
    select_task(model, name)
    try:
        yield model
    finally:
        registry.active = before if registry.knows(before) else None


def train_only(model: nn.Module, name: str, *, shared: bool = False) -> list[nn.Parameter]:
    """Let gradients flow into one task's modules (and the shared layers, if asked) and into nothing else.

    Args:
        model: A network with adapters, not yet wrapped by DistributedDataParallel.
        name: The task to train. It need not be the selected one, but mostly is.
        shared: Train the shared layers too: usual for the first task, and only for it, since earlier tasks
            change with them.

    Returns:
        The trainable parameters: what an optimizer should see.

    Examples:
        >>> optimizer = torch.optim.Adam(train_only(net, "birds"))
        >>> net[0].layer.weight.requires_grad  # the shared convolution is frozen
        False
    """
    row = registry_of(model).row(name)
    trains = dict.fromkeys(model.parameters(), shared)
    for _, bank in named_banks(model):
        trains |= dict.fromkeys(bank.tasks.parameters(), False)
        if bank.mode == "replace":  # the layer is only a pattern: it takes no part in the forward
            trains |= dict.fromkeys(bank.layer.parameters(), False)
        trains |= dict.fromkeys(bank.tasks[row[bank.part]].parameters(), True)
    if is_distributed(model) and any(p.requires_grad != wanted for p, wanted in trains.items()):
        raise UserError(
            f"choose what trains in task {name!r} before the network is wrapped by DistributedDataParallel, which "
            "has taken note of other parameters"
        )
    for parameter, wanted in trains.items():
        parameter.requires_grad_(wanted)
    return [parameter for parameter, wanted in trains.items() if wanted]
