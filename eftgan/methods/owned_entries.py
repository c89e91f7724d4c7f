"""What methods share whose tasks own single entries of the shared weights: a weight here, a row there.

A task reads what earlier tasks own, never writes it, and adds entries of its own. Once a task has ended, entries that
nobody owns are 0, so the shared weights are what the tasks' files say, read in order: the first task's entries are in
the run's shared weights, every later file holds the values that its task added. Which entries these are follows from
what else the task owns: masks or gates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from eftgan.adapters import PARTS, AdapterConfig, load_task, shared_state, task_names
from eftgan.adapters.bank import Part
from eftgan.adapters.taskfile import VALUES
from eftgan.errors import UserError
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.frozen_base import OwnParts
from eftgan.methods.parameters import parameters_in_common
from eftgan.names import CLASSIFIER, GENERATOR


@dataclass
class OwnsEntries(OwnParts):
    """Tasks share out the entries of classifier or generator; discriminators train whole and are in no file."""

    chained: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._whole_networks = False  # whether there are networks that no file holds

    def covered(self, network: nn.Module) -> set[str]:
        """Names of the shared parameters that later tasks leave to earlier ones, entry by entry or altogether."""
        raise NotImplementedError

    def owned(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        """By shared parameter, where this task or an earlier one owns the entry."""
        raise NotImplementedError

    def _adapts(self, role: str) -> bool:
        return role in (CLASSIFIER, GENERATOR)

    def _isolated(self, networks: Networks) -> Iterator[tuple[str, nn.Module]]:
        return ((role, network) for role, network in networks.items() if self._adapts(role))

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"adapters": self.name}

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        super().prepare(networks, adapters)
        self._whole_networks = not all(self._adapts(role) for role in networks)
        for role, network in self._isolated(networks):
            covered = self.covered(network)
            if left := [name for name in parameters_in_common(network, set(PARTS)) if name not in covered]:
                raise UserError(
                    f"method.name: {self.name} cannot share out the {role}'s {left[0]}, which every task would write; "
                    "only convolutions, linear layers and normalisations with weights of their own are known, and "
                    "none may stand in adapters.exclude"
                )

    def owned_by_tasks(self, role: str) -> frozenset[Part]:
        return self.owns if self._adapts(role) else frozenset()

    def owned_before(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        """By shared parameter, where an earlier task owns the entry; nothing where there is none."""
        names = task_names(network)
        return self.owned(network, names[names.index(task) - 1]) if names[0] != task else {}

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        """What is shared and not shared out stays as the network was built."""
        found = super().trainable(networks, task)
        for role, network in self._isolated(networks):
            shared_out = self.owned(network, task)
            for name, parameter in parameters_in_common(network, set(PARTS)).items():
                parameter.requires_grad_(name in shared_out)
            found[role] = [parameter for parameter in found[role] if parameter.requires_grad]
        return found

    def writable(self, role: str, network: nn.Module, task: str) -> Mapping[str, Tensor] | None:
        if not self._adapts(role):
            return None
        return {name: ~earlier for name, earlier in self.owned_before(network, task).items()}

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        """Clear what nobody owns, in averaged weights too."""
        for _, network in self._isolated(networks):
            parameters = dict(network.named_parameters())
            for name, own in self.owned(network, task).items():
                parameters[name].detach().masked_fill_(~own, 0.0)

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        """Other tasks, and what is never written; the trainer adds the entries that `writable` holds."""
        parts = super().frozen(networks, task)
        for role, network in self._isolated(networks):
            shared_out = self.owned(network, task)
            constant = {key: tensor for key, tensor in shared_state(network).items() if key not in shared_out}
            parts |= {f"{role}: theta: {key}": tensor for key, tensor in constant.items()}
        return parts

    @property
    def files_suffice(self) -> bool:
        return not self._whole_networks

    def theta(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        """Without what later tasks added."""
        state, owned = shared_state(network), self.owned(network, task)
        by_parameter = {parameter: owned[name] for name, parameter in network.named_parameters() if name in owned}
        for name, parameter in network.named_parameters(remove_duplicate=False):
            if parameter in by_parameter:
                state[name] = parameter.detach().masked_fill(~by_parameter[parameter], 0.0)
        return state

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return super().snapshot(networks, task) | {
            f"{role}/{key}": tensor
            for role, network in self._isolated(networks)
            for key, tensor in self._values(network, task).items()
        }

    def _added(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        """Where a later task's own entries are, by shared parameter; the first task's are in the shared weights."""
        before = self.owned_before(network, task)
        return {name: own & ~before[name] for name, own in self.owned(network, task).items() if before}

    def _values(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        parameters = dict(network.named_parameters())
        return {f"{VALUES}{name}": parameters[name][at] for name, at in self._added(network, task).items()}

    @torch.no_grad()
    def restore(self, networks: Networks, task: str, tensors: Mapping[str, Tensor]) -> None:
        for role, network in networks.items():
            own = {key.removeprefix(f"{role}/"): t for key, t in tensors.items() if key.startswith(f"{role}/")}
            values = {key: own.pop(key) for key in list(own) if key.startswith(VALUES)}
            load_task(network, task, own)
            parameters = dict(network.named_parameters())
            for name, at in self._added(network, task).items():
                given = values.pop(f"{VALUES}{name}", None)
                if given is None or given.shape != (int(at.sum()),):
                    raise UserError(f"the values that task {task!r} added to {name} are missing or of another number")
                parameters[name][at] = given.to(parameters[name])
            if values:
                raise UserError(f"task {task!r} has {next(iter(values))}, for which the network has no place")
