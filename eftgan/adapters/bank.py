"""A shared layer with one small module per task beside it, and the record of which task is active."""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parallel import DataParallel, DistributedDataParallel

from eftgan.adapters.config import PARTS, AdapterConfig, Part
from eftgan.adapters.layers import Layer
from eftgan.adapters.transforms import Mode, Transform
from eftgan.errors import UserError

__all__ = [
    "PARTS",
    "Part",
    "Row",
    "TaskBank",
    "Tasks",
    "is_distributed",
    "named_banks",
    "registry_of",
    "tasks_share_batches",
    "unwrap",
]

Row: TypeAlias = dict[Part, str]  # for each part, the key of the module that a task uses
HOOK_TABLE = re.compile(r"_(forward|backward)(_pre)?_hooks")  # attributes of nn.Module


class Tasks:
    """The tasks of one model in order, and the active one.

    One object is shared by every bank of a model, so selecting a task sets one field however many layers there
    are. A task is a row: the key of its module for each part. Tasks that share a part have the same key there.
    """

    def __init__(self, config: AdapterConfig) -> None:
        self.config = config  # the one that the banks were made by
        self.rows: dict[str, Row] = {}
        self.made = 0  # keys are never used twice, so a removed task's key cannot come back
        self.active: Row | tuple[Row, ...] | None = None

    def new_key(self) -> str:
        return f"t{self.made + 1:03d}"

    def row(self, name: str) -> Row:
        if name not in self.rows:
            known = ", ".join(self.rows) or "none yet"
            raise UserError(f"no task {name!r} in this model; it has: {known}")
        return self.rows[name]

    def knows(self, active: Row | tuple[Row, ...] | None) -> bool:
        """Whether every row of a selection still belongs to a task."""
        rows = active if isinstance(active, tuple) else (active,)
        return active is None or all(any(known is row for known in self.rows.values()) for row in rows)

    @property
    def active_names(self) -> tuple[str, ...]:
        """Names behind the active rows (none: the base network alone)."""
        if self.active is None:
            return ()
        rows = self.active if isinstance(self.active, tuple) else (self.active,)
        return tuple(next(name for name, known in self.rows.items() if known is row) for row in rows)


class TaskBank(nn.Module):
    """A shared layer and its per-task modules.

    mode "serial": task(layer(x)); "parallel": layer(x) + task(x); "both": task(layer(x), x); "weight": the layer with
    the task's weight and bias in the place of its own; "replace": task(x), the layer being only the pattern that new
    tasks start from (normalisation layers and heads). With no task active the bank is its layer. With a tuple of
    tasks active, the batch is that many equal chunks, one per task. A bank of gates may have another bank for a layer.
    """

    shares_batches: ClassVar[bool] = True  # several tasks can be computed in one batch
    reads_earlier: ClassVar[bool] = False  # a task needs those before it in the model

    def __init__(
        self,
        layer: nn.Module,
        registry: Tasks,
        part: Part,
        mode: Mode,
        make: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.tasks = nn.ModuleDict()
        self.registry = registry
        self.part = part
        self.mode = mode
        self.make = make  # gives a module in its neutral state; None where the layer itself is the pattern
        self.train(layer.training)

    def new_module(self) -> nn.Module:
        """A per-task module in its neutral state, where and as the shared layer is."""
        module: nn.Module
        if self.make is None:
            # Hooks are shared, not copied: one that is a bound method should go on reporting to its own object.
            hooks = {id(v): v.copy() for k, v in vars(self.layer).items() if HOOK_TABLE.fullmatch(k)}
            module = copy.deepcopy(self.layer, hooks)
        else:
            tensor = next(itertools.chain(self.layer.parameters(), self.layer.buffers()), torch.empty(0))
            module = self.make().to(device=tensor.device, dtype=tensor.dtype)
        return module.train(self.training).requires_grad_(True)

    def task(self, row: Row) -> nn.Module:
        """What a task uses here."""
        return self.tasks[row[self.part]]

    def transform(self, row: Row) -> Transform:
        """What a task uses here, where that is a transform."""
        module = self.tasks[row[self.part]]
        assert isinstance(module, Transform)
        return module

    def __getattr__(self, name: str) -> Any:
        """Plain facts of the shared layer (in_features, stride, ...) can be asked of the bank as well."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            layer = self.__dict__.get("_modules", {}).get("layer")
            if isinstance(layer, TaskBank) and not name.startswith("_"):
                return getattr(layer, name)
            if name in ("weight", "bias") and name in getattr(layer, "_parameters", ()):
                raise AttributeError(
                    f"the {name} of an adapted {type(layer).__name__} is used without its forward, so no adapter "
                    "could act there; exclude this layer from the adapters"
                ) from None
            value = getattr(layer, "__dict__", {}).get(name)
            if name.startswith("_") or not isinstance(value, (int, float, str, tuple)):
                raise
            return value

    def forward(self, x: Tensor) -> Tensor:
        row = self.registry.active
        if row is None:
            return self.layer(x)
        if isinstance(row, tuple):
            return self._forward_chunks(x, row)
        task = self.task(row)
        if self.mode == "serial":
            return task(self.layer(x))
        if self.mode == "parallel":
            return self.layer(x) + task(x)
        if self.mode == "both":
            return task(self.layer(x), x)
        return task(x) if self.mode == "replace" else self._with_weight_of(row, x)

    def _with_weight_of(self, row: Row, x: Tensor) -> Tensor:
        """Mode "weight": the layer's own forward, hooks and padding included, with the task's tensors in it."""
        weight, bias = self.tensors_of(row)
        given = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        return functional_call(self.layer, given, (x,))

    def tensors_of(self, row: Row) -> tuple[Tensor, Tensor | None]:
        """Mode "weight": what a task computes with in the place of the layer's weight and bias."""
        layer, transform = cast(Layer, self.layer), self.transform(row)
        return transform.weight(layer.weight), transform.bias(layer.bias)

    def _forward_chunks(self, x: Tensor, rows: tuple[Row, ...]) -> Tensor:
        if not self.shares_batches:
            raise UserError("tasks with networks of their own size cannot share a batch; select one task at a time")
        if x.shape[0] % len(rows):
            raise ValueError(f"a batch of {x.shape[0]} has no {len(rows)} equal chunks, one per active task")
        inputs, tasks = x.chunk(len(rows)), [self.task(row) for row in rows]
        if self.mode == "weight":
            return torch.cat([self._with_weight_of(row, own) for row, own in zip(rows, inputs, strict=True)])
        if self.mode == "replace":
            return torch.cat([task(own) for task, own in zip(tasks, inputs, strict=True)])
        shared = self.layer(x)
        outputs = shared.chunk(len(rows))
        if self.mode == "parallel":
            return shared + torch.cat([task(own) for task, own in zip(tasks, inputs, strict=True)])
        if self.mode == "serial":
            return torch.cat([task(y) for task, y in zip(tasks, outputs, strict=True)])
        return torch.cat([task(y, own) for task, y, own in zip(tasks, outputs, inputs, strict=True)])

    def extra_repr(self) -> str:
        return f"part={self.part}, mode={self.mode}"


def unwrap(model: nn.Module) -> nn.Module:
    """The network itself, inside the wrappers of DDP, DataParallel and torch.compile."""
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif (inner := model._modules.get("_orig_mod")) is not None:
            model = inner
        else:
            return model


def tasks_share_batches(model: nn.Module) -> bool:
    """Whether tasks can stand side by side.

    Not where a task has a column that reads other columns, a network beside the shared one, or units of its own.
    """
    return all(bank.shares_batches for _, bank in named_banks(model))


def is_distributed(model: nn.Module) -> bool:
    """Whether DDP has taken note of the model's trainable parameters already."""
    return any(isinstance(module, DistributedDataParallel) for module in model.modules())


def named_banks(model: nn.Module) -> list[tuple[str, TaskBank]]:
    """Every bank once, with its dotted name in the unwrapped network."""
    banks = [(name, m) for name, m in unwrap(model).named_modules() if isinstance(m, TaskBank)]
    if len({id(bank.registry) for _, bank in banks}) > 1:
        raise UserError(f"{type(model).__name__} holds networks that were adapted one by one; name one of them")
    return banks


def registry_of(model: nn.Module) -> Tasks:
    """The task record of a model (also of one wrapped by DDP or torch.compile)."""
    for module in model.modules():
        if isinstance(module, TaskBank):
            return module.registry
    raise UserError(f"{type(model).__name__} has no adapters; call insert_adapters(model, AdapterConfig(...)) first")
