"""Several tasks in one pass: the tasks stand in the batch dimension, and shared layers see them as one batch."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from eftgan.adapters.bank import Row, TaskBank, named_banks, registry_of, tasks_share_batches, unwrap
from eftgan.adapters.graph import batchnorm_after, trace
from eftgan.adapters.layers import outputs_of
from eftgan.adapters.merge import fast_layout, merged_bank, with_batchnorm, without_hypernetwork
from eftgan.adapters.tasks import using_task
from eftgan.adapters.transforms import Mode
from eftgan.adapters.upsampling import fuse_pairs, unfuse_upsampling, upsampling_pairs
from eftgan.errors import UserError

# Tasks times inputs stand in one batch. Beyond some samples that saves nothing more, and results leave the cache
# (docs/benchmarks.md): a rule, so that results never depend on timing.
SAMPLES_AT_ONCE = 32
AnyStack = TypeVar("AnyStack", bound=nn.Module)


class Together(nn.Module):
    """A network's tasks side by side, for inference (a copy in eval mode, equal to each task up to rounding).

    Every shared layer runs once on the samples of all tasks; each task's transforms run on the task's portion, as one
    convolution with the BatchNorm behind it folded in. The layer that reads the input is computed once for all. Tasks
    that change a layer's weight each have that layer for themselves.

    Args:
        model: A network with adapters; it stays as it is.
        tasks: Which tasks, and in which order their answers come.

    Examples:
        >>> both = Together(net, ["cats", "birds"])
        >>> for_cats, for_birds = both(images)  # every task's answer for every image
        >>> mixed = both.mixed(images, torch.tensor([0, 1, 1, 0]))  # a task per image
        >>> mixed.shape  # rows of the task with fewer classes are filled up with -inf
        torch.Size([4, 20])
    """

    def __init__(self, model: nn.Module, tasks: Sequence[str]) -> None:
        super().__init__()
        self.tasks = list(tasks)
        self.batch = Portions()
        self.network, stacks, graph = side_by_side(model, tasks, partial(Stack, batch=self.batch))
        self.batch.entry = stacks.get(_only_reader_of_input(graph))

    @torch.no_grad()
    def forward(self, x: Tensor) -> list[Any]:
        """What every task answers for the same inputs (B, ...): its output as if it were alone, task by task."""
        at_once = max(1, SAMPLES_AT_ONCE // max(1, len(x)))
        numbers = range(len(self.tasks))
        return [answer for first in numbers[::at_once] for answer in self._answers(x, numbers[first : first + at_once])]

    def _answers(self, x: Tensor, tasks: Sequence[int]) -> list[Any]:
        count, once = len(tasks), self.batch.entry is not None
        inputs = x if once else x.repeat(count, *[1] * (x.dim() - 1))
        outputs = self._run(inputs, tasks, [len(x)] * count, once)
        return [
            self._cut(each_tensor(outputs, partial(_chunk, count=count, index=place)), task)
            for place, task in enumerate(tasks)
        ]

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


def side_by_side(
    model: nn.Module,
    tasks: Sequence[str],
    make_stack: "Callable[[TaskBank, list[nn.Module], Mapping[int, nn.Module]], AnyStack]",
) -> tuple[nn.Module, dict[str, AnyStack], fx.Graph | None]:
    """A copy of the network for inference with a stack of some tasks' modules in the place of every bank.

    Returned with it are the stacks by name, and the graph of the network without tasks, where it can be traced.
    make_stack: from a bank, the tasks' modules there (BatchNorm folded in where it can be), and by the ids of banks
    what stands for those inside it.
    """
    if not tasks:
        raise UserError("no tasks to run together; name one at least")
    if not tasks_share_batches(model):
        raise UserError("tasks with networks of their own size cannot stand side by side; ask one at a time")
    network, registry = unwrap(model), registry_of(model)
    rows, banks = [registry.row(task) for task in tasks], dict(named_banks(network))
    with using_task(network, None):
        graph = trace(network)
    modules = {name: [_module(bank, row) for row in rows] for name, bank in banks.items()}
    folded = _fold_norms(network, graph, banks, modules)
    # deepcopy takes what stands in its memo for a copy: the banks, with all their tasks, are never copied.
    stacks: dict[str, AnyStack] = {}
    memo = without_hypernetwork(network)
    for name, bank in reversed(banks.items()):  # a bank inside another one first
        if name not in folded:
            stacks[name] = make_stack(bank, modules[name], memo)
        memo[id(bank)] = stacks.get(name, nn.Identity())
    pairs = [pair for pair in upsampling_pairs(network, graph) if _is_shared(pair[1], banks)]
    copied = copy.deepcopy(network, dict(memo)).eval()
    fuse_pairs(copied, pairs)
    unfuse_upsampling(copied)
    return fast_layout(copied), stacks, graph


class Portions:
    """How the batch that is running is divided: known to all stacks of a network."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.sizes: list[int] = []  # samples of each of these tasks, in order
        self.entry: Stack | None = None  # the stack that reads the network's input, where it is the only reader
        self.once = False  # the input came once for all tasks
        self.widths: list[int] | None = None  # outputs of the heads, where they differ


class Stack(nn.Module):
    """A bank's shared layer, where it has something to do, and the modules of several tasks.

    `stacks`, by the id of a bank, stand for banks inside the layer.
    """

    def __init__(
        self, bank: TaskBank, tasks: list[nn.Module], stacks: Mapping[int, nn.Module], batch: Portions
    ) -> None:
        super().__init__()
        self.mode: Mode = bank.mode
        self.layer = shared_layer(bank, stacks)
        self.tasks, self.batch = nn.ModuleList(tasks), batch
        self.width: int | None = None  # of heads that differ in size: all are filled up with -inf to the widest
        if bank.part == "heads":
            widths = [outputs_of(head) for head in tasks]
            if len(set(widths)) > 1:
                batch.widths, self.width = widths, max(widths)

    def forward(self, x: Tensor) -> Tensor:
        shared = x if self.layer is None else self.layer(x)
        portions = zip(self.batch.tasks, self._split(shared), self._split(x), strict=True)
        answers = [answer(self.mode, self.tasks[task], y, own_x) for task, y, own_x in portions]
        if self.width is not None:
            behind = [0, 0] * (answers[0].dim() - 2)  # F.pad counts axes from the last, classes stand on axis 1
            answers = [F.pad(each, [*behind, 0, self.width - each.shape[1]], value=-torch.inf) for each in answers]
        return torch.cat(answers)

    def _split(self, tensor: Tensor) -> Sequence[Tensor]:
        if self.batch.once and self.batch.entry is self:
            return [tensor] * len(self.batch.tasks)
        return tensor.split(self.batch.sizes)


def shared_layer(bank: TaskBank, stacks: Mapping[int, nn.Module]) -> nn.Module | None:
    """A copy of a bank's layer, none where tasks have all of it for themselves; `stacks`: for banks inside it."""
    return None if bank.mode in ("weight", "replace") else copy.deepcopy(bank.layer, dict(stacks))


def answer(mode: Mode, task: Callable[..., Tensor], y: Tensor, x: Tensor) -> Tensor:
    """What a task makes of the shared layer's output y (where it has none: of its input) and of its input x."""
    if mode == "parallel":
        return y + task(x)
    return task(y, x) if mode == "both" else task(y)


def _module(bank: TaskBank, row: Row) -> nn.Module:
    """A copy, as plain as it can be, of what a task has in a bank."""
    if bank.mode == "weight":
        return merged_bank(bank, row)
    return (copy.deepcopy(bank.task(row)) if bank.part != "transforms" else bank.transform(row).standalone()).eval()


def _fold_norms(
    network: nn.Module, graph: fx.Graph | None, banks: dict[str, TaskBank], modules: dict[str, list[nn.Module]]
) -> set[str]:
    """Fold BatchNorms into the tasks' modules that alone feed them; the names of banks with nothing left to do."""
    done = set()
    for layer, norm in batchnorm_after(network, graph).items():
        name, behind = layer.removesuffix(".layer"), norm.removesuffix(".layer")
        if name not in banks or behind not in banks or banks[name].mode not in ("serial", "weight"):
            continue
        both = [with_batchnorm(*pair) for pair in zip(modules[name], modules[behind], strict=True)]
        folded = [module for module in both if module is not None]
        if len(folded) == len(both):
            modules[name] = folded
            done.add(behind)
    return done


def _is_shared(layer: str, banks: dict[str, TaskBank]) -> bool:
    """Whether all tasks use the layer of this name, so that its stack still has it."""
    bank = banks.get(layer.removesuffix(".layer"))
    return bank is None or bank.mode == "serial"


def _only_reader_of_input(graph: fx.Graph | None) -> str:
    """Name of the bank that the network's input goes into, and nowhere else; empty where there is none."""
    if graph is None:
        return ""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    readers = [user for node in inputs for user in node.users]
    if len(inputs) != 1 or len(readers) != 1 or readers[0].op != "call_module":
        return ""
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == readers[0].target]
    return readers[0].target.removesuffix(".layer") if len(calls) == 1 else ""


def _chunk(tensor: Tensor, count: int, index: int) -> Tensor:
    return tensor.chunk(count)[index]


def each_tensor(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A network's output, a tensor or a list of them, changed tensor by tensor."""
    return change(output) if isinstance(output, Tensor) else [change(tensor) for tensor in output]
