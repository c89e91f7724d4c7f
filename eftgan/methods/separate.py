"""Separate networks: the bound without any sharing, a whole network for every task."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from eftgan.adapters import PARTS, AdapterConfig, add_task, named_banks, registry_of, task_state
from eftgan.adapters.bank import Part
from eftgan.adapters.tasks import resize_head
from eftgan.errors import UserError
from eftgan.methods.base import Method
from eftgan.methods.exchange import Networks
from eftgan.methods.heads import head_of
from eftgan.methods.parameters import parameters_in_common, state_of_others


@dataclass
class Separate(Method):
    """Every task trains a network of its own from the same first weights, as if it were the only task.

    All layers become per-task ones, without transforms; the network as built is the pattern they start from.
    """

    title: ClassVar[str] = "Separate (bound)"
    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)
    fresh: ClassVar[bool] = True

    name: Literal["separate"] = "separate"

    def __post_init__(self) -> None:
        if self.later_rate != 1.0:
            raise UserError(f"method.later_rate: {self.name} trains every task as a first one; leave it out")

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        super().prepare(networks, adapters)
        self.check_nothing_shared(networks)

    def check_nothing_shared(self, networks: Networks) -> None:
        """Refuse networks with parameters that no task has of its own."""
        for role, network in networks.items():
            if shared := parameters_in_common(network, set(PARTS)):
                raise UserError(
                    f"method.name: {self.name} cannot hold a copy per task of the {role}'s {next(iter(shared))}: only "
                    "convolutions, linear layers and normalisations are known"
                )

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, heads=("*",), exclude=(), parts=("norms", "heads"))

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        for network in networks.values():
            with torch.random.fork_rng():  # random numbers are for the head alone, as in a first task
                add_task(network, task)
            row = registry_of(network).row(task)
            for _, bank in named_banks(network):
                bank.tasks[row[bank.part]].load_state_dict(bank.layer.state_dict())
            if head_size:
                head = head_of(network, task)
                resize_head(head, head_size)
                head.reset_parameters()

    def trains_shared(self, role: str, first: bool) -> bool:
        return False

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {
            f"{role}: {key}": tensor
            for role, network in networks.items()
            for key, tensor in state_of_others(network, task, theta=True).items()
        }

    @property
    def files_suffice(self) -> bool:
        return True

    @property
    def lets_go(self) -> bool:
        return True

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {
            f"{role}/{key}": tensor
            for role, network in networks.items()
            for key, tensor in task_state(network, task).items()
        }
