"""Progressive neural networks (Rusu et al. 2016)."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import nn
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, add_task, named_banks, registry_of, task_names
from eftgan.adapters.chains import layers_before
from eftgan.adapters.columns import Column, ReadsColumns, add_columns, narrower
from eftgan.adapters.layers import resize_head
from eftgan.config import Positive
from eftgan.methods.base import Method
from eftgan.methods.exchange import Networks
from eftgan.methods.heads import head_of
from eftgan.methods.separate import Separate
from eftgan.names import CLASSIFIER


@dataclass
class Pnn(Separate):
    """PNN: a column of layers per task, each of which also reads the layer below it in all earlier columns.

    y = W h + U relu(V [alpha_j h_j]_{j<t}) (eq. 2), h_j being what the same layer of column j reads. Earlier columns
    never change. The network as built is the pattern of the columns, which may be narrower.
    """

    title: ClassVar[str] = "PNN"
    only_for: ClassVar[str | None] = CLASSIFIER
    chained: ClassVar[bool] = True

    name: Literal["pnn"] = "pnn"  # type: ignore[assignment]
    width: Annotated[
        Positive, Doc("of a column, as a multiple of the network's; other than 1: for chains of simple layers alone")
    ] = 1.0

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        network = networks[CLASSIFIER]
        before = layers_before(network)
        patterns = narrower(network, self.width) if self.width != 1 else {}
        Method.prepare(self, networks, adapters)
        add_columns(network, before, patterns)
        self.check_nothing_shared(networks)

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, exclude=(), parts=("norms", "heads"))

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        """A column with the network's first weights, or drawn where its width is another; laterals are drawn."""
        network = networks[CLASSIFIER]
        columns = len(task_names(network))
        with torch.random.fork_rng():  # random numbers are for what follows, the head first, as in `separate`
            add_task(network, task)
        row = registry_of(network).row(task)
        if head_size:
            head = head_of(network, task)
            resize_head(head, head_size)
            head.reset_parameters()
        for _, bank in named_banks(network):
            if bank.part != "heads":
                bank.tasks[row[bank.part]] = bank.new_module()
        for module in self.columns_of(network, task):
            if self.width != 1 and isinstance(module, Column):
                module.reset_parameters()
            module.begin_laterals(columns)

    def columns_of(self, network: nn.Module, task: str) -> list[ReadsColumns]:
        """The layers of a task's column, its head included."""
        row = registry_of(network).row(task)
        modules = [bank.task(row) for _, bank in named_banks(network)]
        return [module for module in modules if isinstance(module, ReadsColumns)]

    @property
    def lets_go(self) -> bool:
        """Later columns read all earlier ones."""
        return False
