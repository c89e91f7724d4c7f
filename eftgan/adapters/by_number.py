"""All tasks in one network, the task a number that comes with the input: what an exported graph needs."""

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from eftgan.adapters.bank import TaskBank
from eftgan.adapters.layers import outputs_of, resize_head
from eftgan.adapters.together import answer, shared_layer, side_by_side
from eftgan.errors import UserError


class ByNumber(nn.Module):
    """A network whose task is chosen by a tensor at run time, for inference (a copy in eval mode).

    The weights of all tasks stand side by side in one tensor, and the number picks a row: the cost of a pass is that of
    one task, and shared weights are held once. Every task must have the same modules of the same shapes; heads of fewer
    outputs are filled up to the widest, whose further outputs are -inf.
    """

    def __init__(self, model: nn.Module, tasks: Sequence[str]) -> None:
        super().__init__()
        self.tasks = list(tasks)
        self.chosen = Chosen()
        self.network, _, _ = side_by_side(model, tasks, partial(Rows, chosen=self.chosen))

    def forward(self, x: Tensor, task: Tensor) -> Any:
        """x (B, ...) as task number `task` answers: a whole number from 0, as a tensor without axes."""
        self.chosen.row = task.reshape(1)
        try:
            return self.network(x)
        finally:
            self.chosen.row = None


class Chosen:
    """The number of the pass that is running: known to all the rows of a network."""

    row: Tensor | None = None  # (1,)


class Rows(nn.Module):
    """A bank's shared layer, where it has something to do, and a row of weights per task."""

    def __init__(self, bank: TaskBank, tasks: list[nn.Module], stacks: Mapping[int, nn.Module], chosen: Chosen) -> None:
        super().__init__()
        self.mode, self.chosen = bank.mode, chosen
        self.layer = shared_layer(bank, stacks)
        alike = _equally_wide(tasks) if bank.part == "heads" else tasks
        states = [module.state_dict(keep_vars=False) for module in alike]
        if any(_shapes(state) != _shapes(states[0]) for state in states):
            raise UserError(f"tasks differ in the shapes of their {bank.part}, so no number can choose between them")
        self.names = list(states[0])
        for place, name in enumerate(self.names):  # names of buffers have no dots
            self.register_buffer(f"rows{place}", torch.stack([state[name] for state in states]))
        self.pattern = (copy.deepcopy(alike[0]).eval(),)  # not a submodule: its own weights are never used

    def forward(self, x: Tensor) -> Tensor:
        assert self.chosen.row is not None
        rows = [getattr(self, f"rows{place}") for place in range(len(self.names))]
        picked = [torch.index_select(row, 0, self.chosen.row).squeeze(0) for row in rows]
        given = dict(zip(self.names, picked, strict=True))
        shared = x if self.layer is None else self.layer(x)
        return answer(self.mode, lambda *inputs: functional_call(self.pattern[0], given, inputs), shared, x)


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _equally_wide(heads: list[nn.Module]) -> list[nn.Module]:
    """Copies of heads with as many outputs as the widest; what was not there answers -inf."""
    widest = max(outputs_of(head) for head in heads)
    return [head if outputs_of(head) == widest else _widened(head, widest) for head in heads]


def _widened(head: nn.Module, outputs: int) -> nn.Module:
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise UserError("tasks have different numbers of outputs and no linear head with a bias; export one at a time")
    wide, own = copy.deepcopy(head), head.out_features
    resize_head(wide, outputs)
    with torch.no_grad():
        wide.weight.zero_()[:own] = head.weight
        wide.bias.fill_(-torch.inf)[:own] = head.bias
    return wide
