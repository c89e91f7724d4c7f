"""The network as it was before a task, kept frozen beside the one in training."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from eftgan.adapters import named_banks, registry_of, remove_task, task_names


class Predecessor:
    """A frozen copy of a network in eval mode; there is none until `take` or `load` makes it."""

    def __init__(self) -> None:
        self._network: nn.Module | None = None

    def __bool__(self) -> bool:
        return self._network is not None

    @property
    def network(self) -> nn.Module:
        if self._network is None:
            raise RuntimeError("there is no predecessor: it must be taken or loaded first")
        return self._network

    def take(self, network: nn.Module) -> None:
        """Copy a network as it is now."""
        self._network = copy.deepcopy(network).eval().requires_grad_(False)

    def drop(self) -> None:
        self._network = None

    def to(self, device: torch.device) -> None:
        """Move to where the network in training is; nothing where there is no predecessor."""
        if self._network is not None:
            self._network.to(device)

    def state_dict(self) -> dict[str, Tensor]:
        """The copy's tensors under the network's own names; empty where there is none."""
        return {} if self._network is None else self._network.state_dict()

    def load(self, state: Mapping[str, Tensor], network: nn.Module) -> None:
        """Take back what `state_dict` gave. `network`, in training now, may have tasks that the copy did not know."""
        self.drop()
        if state:
            self.take(network)
            for task in task_names(self.network):
                if not _knows(state, self.network, task):
                    remove_task(self.network, task)
            self.network.load_state_dict(state)


def _knows(state: Mapping[str, Tensor], network: nn.Module, task: str) -> bool:
    """Whether a state dict has the modules that a task of the network uses."""
    row = registry_of(network).row(task)
    modules = {f"{name}.tasks.{row[bank.part]}." for name, bank in named_banks(network)}
    return all(any(key.startswith(module) for key in state) for module in modules)
