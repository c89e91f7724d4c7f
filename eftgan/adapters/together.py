"""Several tasks in one pass: the tasks stand in the batch dimension, and shared layers see them as one batch."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from eftgan.adapters.bank import Row, TaskBank, named_banks, registry_of, unwrap
from eftgan.adapters.graph import batchnorm_after, trace
from eftgan.adapters.merge import fast_layout, plain_convolution
from eftgan.adapters.tasks import using_task
from eftgan.adapters.transforms import ConvTransform
from eftgan.errors import UserError


class Together(nn.Module):
    """A network's tasks side by side, for inference (a copy in eval mode, equal to each task up to rounding).

    Every shared layer runs once on the samples of all tasks; each task's transforms run on the task's portion, as one
    convolution with the BatchNorm behind it folded in. The layer that reads the input is computed once for all.
    """

    def __init__(self, model: nn.Module, tasks: Sequence[str]) -> None:
        super().__init__()
        if not tasks:
            raise UserError("no tasks to run together; name one at least")
        network, registry = unwrap(model), registry_of(model)
        rows, banks = [registry.row(task) for task in tasks], dict(named_banks(network))
        with using_task(network, None):
            graph = trace(network)
        norms = _norm_banks_after(network, graph, banks)
        self.tasks = list(tasks)
        self.batch = Portions()
        folded = {id(norm) for norm in norms.values()}
        # deepcopy takes what stands in its memo for a copy: the banks, with all their tasks, are never copied.
        stacks = {
            id(bank): nn.Identity() if id(bank) in folded else _stack(bank, norms.get(name), rows, self.batch)
            for name, bank in banks.items()
        }
        entry = banks.get(_only_reader_of_input(graph))
        self.batch.entry = None if entry is None else stacks[id(entry)]
        self.network = fast_layout(copy.deepcopy(network, stacks).eval())

    @torch.no_grad()
    def forward(self, x: Tensor) -> list[Any]:
        """What every task answers for the same inputs (B, ...): its output as if it were alone, task by task."""
        count, once = len(self.tasks), self.batch.entry is not None
        inputs = x if once else x.repeat(count, *[1] * (x.dim() - 1))
        outputs = self._run(inputs, range(count), [len(x)] * count, once)
        return [self._cut(each_tensor(outputs, lambda out, t=t: out.chunk(count)[t]), t) for t in range(count)]

    @torch.no_grad()
    def mixed(self, x: Tensor, tasks: Tensor) -> Any:
        """Sample i as task number tasks[i] (from 0, in the order given) answers for it.

        Outputs of a task with fewer classes than the largest are filled up with -inf: probability 0.
        """
        if tasks.shape != (len(x),) or not 0 <= int(tasks.min()) <= int(tasks.max()) < len(self.tasks):
            raise ValueError(f"tasks: one number below {len(self.tasks)} is needed for each of the {len(x)} samples")
        order = tasks.argsort(stable=True)
        present, sizes = tasks.unique(return_counts=True)
        outputs = self._run(x[order.to(x.device)], present.tolist(), sizes.tolist(), False)
        back = order.argsort()
        return each_tensor(outputs, lambda out: out[back.to(out.device)])

    def _run(self, x: Tensor, tasks: Sequence[int], sizes: Sequence[int], once: bool) -> Any:
        self.batch.tasks, self.batch.sizes, self.batch.once = list(tasks), list(sizes), once
        return self.network(x)

    def _cut(self, output: Any, task: int) -> Any:
        """A task's own classes, where the tasks have different numbers of them."""
        return output if self.batch.widths is None else output[:, : self.batch.widths[task]]


class Portions:
    """How the batch that is running is divided: known to all stacks of a network."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.sizes: list[int] = []  # samples of each of these tasks, in order
        self.entry: Stack | None = None  # the stack that reads the network's input, where it is the only reader
        self.once = False  # the input came once for all tasks
        self.widths: list[int] | None = None  # outputs of the heads, where they differ


class Stack(nn.Module):
    """A bank's shared layer and the modules of several tasks behind it, beside it or in its place."""

    def __init__(
        self, layer: nn.Module | None, tasks: list[nn.Module], batch: Portions, *, parallel: bool, width: int | None
    ) -> None:
        super().__init__()
        self.layer, self.tasks = layer, nn.ModuleList(tasks)
        self.batch, self.parallel = batch, parallel
        self.width = width  # of heads that differ in size: all are filled up with -inf to the widest

    def forward(self, x: Tensor) -> Tensor:
        shared = x if self.layer is None else self.layer(x)
        parts = self._split(x if self.parallel else shared)
        answers = [self.tasks[t](part) for t, part in zip(self.batch.tasks, parts, strict=True)]
        if self.parallel:
            answers = [base + own for base, own in zip(self._split(shared), answers, strict=True)]
        if self.width is not None:
            answers = [F.pad(answer, (0, self.width - answer.shape[1]), value=-torch.inf) for answer in answers]
        return torch.cat(answers)

    def _split(self, tensor: Tensor) -> Sequence[Tensor]:
        if self.batch.once and self.batch.entry is self:
            return [tensor] * len(self.batch.tasks)
        return tensor.split(self.batch.sizes)


def _stack(bank: TaskBank, norm: TaskBank | None, rows: Sequence[Row], batch: Portions) -> Stack:
    modules = []
    for row in rows:
        task = bank.tasks[row[bank.part]]
        module = plain_convolution(task) if isinstance(task, ConvTransform) else copy.deepcopy(task)
        if norm is not None:
            module = fuse_conv_bn_eval(module.eval(), copy.deepcopy(norm.tasks[row["norms"]]).eval())
        modules.append(module)
    widths, width = [getattr(module, "out_features", None) for module in modules], None
    if bank.part == "heads" and len(set(widths)) > 1:
        batch.widths, width = widths, max(widths)
    layer = None if bank.mode == "replace" else copy.deepcopy(bank.layer)
    return Stack(layer, modules, batch, parallel=bank.mode == "parallel", width=width)


def _norm_banks_after(network: nn.Module, graph: fx.Graph | None, banks: dict[str, TaskBank]) -> dict[str, TaskBank]:
    """Name of a bank of serial convolution transforms -> the bank of the BatchNorms that alone read its output."""
    pairs = {}
    for layer, norm in batchnorm_after(network, graph).items():
        first, second = banks.get(layer.removesuffix(".layer")), banks.get(norm.removesuffix(".layer"))
        if first is None or second is None or first.mode != "serial" or not isinstance(first.layer, nn.Conv2d):
            continue
        if all(task.running_mean is not None for task in second.tasks.values()):
            pairs[layer.removesuffix(".layer")] = second
    return pairs


def _only_reader_of_input(graph: fx.Graph | None) -> str | None:
    """Name of the bank that the network's input goes into, and nowhere else."""
    if graph is None:
        return None
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    readers = [user for node in inputs for user in node.users]
    if len(inputs) != 1 or len(readers) != 1 or readers[0].op != "call_module":
        return None
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == readers[0].target]
    return readers[0].target.removesuffix(".layer") if len(calls) == 1 else None


def each_tensor(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A network's output, a tensor or a list of them, changed tensor by tensor."""
    return change(output) if isinstance(output, Tensor) else [change(tensor) for tensor in output]
