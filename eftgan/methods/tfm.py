"""Ternary feature masks (Masana et al., CVPR workshops 2021), in a network of a fixed size."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.adapters.gates import SliceGate
from eftgan.config import Count, Share
from eftgan.errors import UserError
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.gated_units import GatedUnits, gates_of, open_units
from eftgan.names import CLASSIFIER


@dataclass
class Tfm(GatedUnits):
    """Every task is given some new features of each layer: it learns those, uses the earlier ones, and no others.

    With tau(i) the task of feature i, task t has the gate [tau(i) <= t] and trains the rows tau(i) = t; entries from
    newer to older features, tau(j) > tau(i), are 0. The features of a layer are dealt out in slices: `first` of them to
    the first task, the others in equal parts.
    """

    title: ClassVar[str] = "TFM, fixed size"
    gate: ClassVar[str] = "slice"

    name: Literal["tfm"] = "tfm"
    first: Annotated[Share, Doc("share of every layer's features that the first task learns; 1: all of them")] = 0.5
    tasks: Annotated[Count, Doc("tasks that features are dealt out to, the first included; no run can have more")] = 10

    @property
    def own_first_task(self) -> dict[str, str]:
        return {**super().own_first_task, "first": str(self.first), "tasks": str(self.tasks)}

    def slice_end(self, channels: int, task: int) -> int:
        """How many features of a layer are dealt out when task number `task` (from 0) is done."""
        if self.first == 1.0 or self.tasks == 1:
            return channels
        begin = min(max(round(self.first * channels), 1), channels - (self.tasks - 1))
        if begin < 1:
            raise UserError(
                f"method.tasks: a layer of {channels} features cannot be dealt out to {self.tasks} tasks, at least one "
                "each; lower method.tasks or take a wider network"
            )
        return begin + (channels - begin) * task // (self.tasks - 1)

    def owned(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        return self.entries(network, open_units(network, task), rows=True)

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        number = len(task_names(networks[CLASSIFIER]))
        if number >= self.tasks:
            raise UserError(
                f"task {task}: method.tasks deals the features out to {self.tasks} tasks, and this is number "
                f"{number + 1}; train again with a larger method.tasks"
            )
        super().grow(networks, task, init=init, head_size=head_size)
        for gate in gates_of(networks[CLASSIFIER], task).values():
            assert isinstance(gate, SliceGate)
            gate.count.fill_(self.slice_end(gate.channels, number))
        self.draw_free_entries(networks, task)

    @torch.no_grad()
    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        """Clear what the task's rows would read of newer features, which are 0 to the task itself."""
        network = networks[CLASSIFIER]
        parameters, used = dict(network.named_parameters()), self.entries(network, open_units(network, task))
        earlier = self.owned_before(network, task)
        for name, own in self.owned(network, task).items():
            new = own & ~earlier[name] if earlier else own
            parameters[name].masked_fill_(new & ~used[name], 0.0)
        super().end_task(networks, task, probe)
