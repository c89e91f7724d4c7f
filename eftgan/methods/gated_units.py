"""What HAT and TFM share: gates that give every task some units of each layer, and weights that go with them."""

import copy
import dataclasses
import weakref
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, own_transforms, task_names
from eftgan.adapters.gates import FixedGate
from eftgan.adapters.wiring import GatedLayer, gated_layers
from eftgan.methods.exchange import Networks
from eftgan.methods.owned_entries import OwnsEntries
from eftgan.names import CLASSIFIER


@dataclass
class GatedUnits(OwnsEntries):
    """A task computes with the units that its gates leave open; normalisation and head are its own.

    Entries of the shared weights that no task owns are drawn anew for every later task, as PyTorch starts a layer.
    """

    only_for: ClassVar[str | None] = CLASSIFIER
    gate: ClassVar[str]  # a name in GATES

    def __post_init__(self) -> None:
        super().__post_init__()
        self._wiring: weakref.WeakKeyDictionary[nn.Module, list[GatedLayer]] = weakref.WeakKeyDictionary()

    def layers(self, network: nn.Module) -> list[GatedLayer]:
        """The layers that are shared out, with their gates."""
        if network not in self._wiring:
            self._wiring[network] = gated_layers(network)
        return self._wiring[network]

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, parts=("norms", "heads"), gate=self.gate)

    def covered(self, network: nn.Module) -> set[str]:
        return {f"{each.name}.{key}" for each in self.layers(network) for key in ("weight", "bias")}

    def entries(self, network: nn.Module, units: dict[str, Tensor], *, rows: bool = False) -> dict[str, Tensor]:
        """By shared parameter, where it joins two of the given units, named by their gates; rows: to one, from any."""
        found = {}
        for each in self.layers(network):
            outputs = units[each.gate]
            inputs = [] if rows else [units[gate] for gate in each.inputs or ()]
            joined = torch.stack(inputs).any(0) if inputs else None
            found[f"{each.name}.weight"] = each.entries(outputs, joined)
            if each.layer.bias is not None:
                found[f"{each.name}.bias"] = outputs
        return found

    @torch.no_grad()
    def draw_free_entries(self, networks: Networks, task: str) -> None:
        """Give entries that no earlier task owns a new start; in the first task they have theirs."""
        network = networks[CLASSIFIER]
        earlier = self.owned_before(network, task)
        for each in self.layers(network) if earlier else ():
            fresh = copy.deepcopy(each.layer)
            fresh.reset_parameters()
            for key, parameter in each.layer.named_parameters(recurse=False):
                drawn = fresh.get_parameter(key)
                parameter.copy_(torch.where(earlier[f"{each.name}.{key}"], parameter, drawn))


def gates_of(network: nn.Module, task: str) -> dict[str, FixedGate]:
    """A task's gates by the names of their banks."""
    return {name: gate for name, gate in own_transforms(network, task).items() if isinstance(gate, FixedGate)}


def open_units(network: nn.Module, task: str) -> dict[str, Tensor]:
    """By gate, the units that a task uses."""
    return {name: gate.opened for name, gate in gates_of(network, task).items()}


def units_through(network: nn.Module, task: str) -> dict[str, Tensor]:
    """By gate, the units that a task or one before it uses."""
    names = task_names(network)
    each = [open_units(network, name) for name in names[: names.index(task) + 1]]
    return {gate: torch.stack([units[gate] for units in each]).any(0) for gate in each[0]}
