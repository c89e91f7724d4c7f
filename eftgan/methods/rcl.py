"""Reinforced continual learning (Xu and Zhu, NeurIPS 2018)."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, add_task, task_names, task_state
from eftgan.adapters.chains import Link, chain_of
from eftgan.adapters.growing import add_units, growing_banks, let_grow, take_state, units_of
from eftgan.config import NonNegative
from eftgan.errors import UserError
from eftgan.methods.controller import Controller, reward
from eftgan.methods.exchange import MethodStage, Networks, Probe
from eftgan.methods.frozen_base import OwnParts
from eftgan.names import CLASSIFIER

Units = Annotated[int, Field(ge=0)]
CONTROLLER, BEST = "controller/", "best/"  # before keys in a state


@dataclass
class Trials:
    """What is known of the trials of one task."""

    controller: Controller
    drawn: int  # what random numbers are drawn from
    units: list[int] = field(default_factory=list)  # of the trial that is running
    accuracy: float = 0.0  # of the last one, on images held out
    rewarded: float = -float("inf")  # the best of those that are done
    best: dict[str, Tensor] = field(default_factory=dict)  # what the task had of its own then

    def tensors(self) -> dict[str, Tensor]:
        kept = {f"{CONTROLLER}{key}": tensor for key, tensor in self.controller.tensors().items()}
        kept |= {f"{BEST}{key}": tensor for key, tensor in self.best.items()}
        facts = torch.tensor([self.drawn, self.rewarded], dtype=torch.float64)
        return {"facts": facts, "units": torch.tensor(self.units, dtype=torch.int64), **kept}


@dataclass
class Rcl(OwnParts):
    """Every later task adds units to the layers, which read all that is there; nothing that was there changes.

    How many is tried out: a controller chooses, the task is trained, and the accuracy on images held out, less a price
    per unit, is the controller's reward. The best trial is kept. The first task trains the network as it is.
    Normalisation and head are every task's own.
    """

    title: ClassVar[str] = "RCL"
    only_for: ClassVar[str | None] = CLASSIFIER
    chained: ClassVar[bool] = True

    name: Literal["rcl"] = "rcl"
    trials: Annotated[
        Units,
        Doc("how often the controller chooses, each in an equal part of a later task's epochs; 0: as `actions` say"),
    ] = 8
    most: Annotated[
        list[Units], Doc("the largest number of units that the controller may add to each layer; one number: to each")
    ] = field(default_factory=lambda: [29])
    price: Annotated[NonNegative, Doc("beta: what a unit costs, in accuracy")] = 1e-4
    actions: Annotated[
        list[Units], Doc("with trials: 0: units that a later task adds to each layer, in order; one number: to each")
    ] = field(default_factory=lambda: [8])

    def __post_init__(self) -> None:
        for key in ("most", "actions"):
            check_some_units(key, getattr(self, key))
        self._trials: Trials | None = None  # of the task in training
        self._network: nn.Module | None = None  # in training

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"adapters": self.name}

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        network = networks[CLASSIFIER]
        links = chain_of(network, f"method.name: {self.name} lets the layers of a chain grow")
        for key in ("most", "actions"):
            check_units(key, getattr(self, key), links)
        super().prepare(networks, adapters)
        let_grow(network, links)

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, exclude=(), parts=("norms", "heads"))

    def trains_shared(self, role: str, first: bool) -> bool:
        return first

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        network = networks[CLASSIFIER]
        first = not task_names(network)
        add_task(network, task, "identity", head_size=head_size)
        layers = len(growing_banks(network))
        add_units(network, task, [0] * layers if first or self.trials else each_of(self.actions, layers))
        self._trials = None if first or not self.trials else self._begin_trials(network, int(torch.randint(2**31, ())))

    def _begin_trials(self, network: nn.Module, drawn: int) -> Trials:
        with torch.random.fork_rng():
            torch.manual_seed(drawn)
            return Trials(Controller(each_of(self.most, len(growing_banks(network)))), drawn)

    def stages(self, first: bool) -> list[MethodStage]:
        if first or not self.trials:
            return super().stages(first)
        share = 1 / self.trials
        return [MethodStage(f"trial {i + 1}", share, whole_schedule=True, held_out=True) for i in range(self.trials)]

    def begin_stage(self, networks: Networks, task: str, stage: str) -> None:
        """The controller chooses, and what the task has of its own begins anew."""
        if (trials := self._trials) is None:
            return
        with torch.random.fork_rng():
            torch.manual_seed(trials.drawn + int(stage.split()[1]))
            trials.units = trials.controller.choose()
            add_units(networks[CLASSIFIER], task, trials.units)

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        self._network = networks[CLASSIFIER]
        return super().trainable(networks, task)

    def measured(self, stage: str, accuracy: float) -> None:
        if self._trials is not None:
            self._trials.accuracy = accuracy

    def end_stage(self, networks: Networks, task: str, stage: str) -> None:
        """The controller learns; after the last trial the best one is put back."""
        if (trials := self._trials) is None:
            return
        network = networks[CLASSIFIER]
        rewarded = reward(trials.accuracy, trials.units, self.price)
        trials.controller.learn(trials.units, rewarded)
        if rewarded > trials.rewarded:
            trials.rewarded = rewarded
            trials.best = {key: tensor.detach().clone() for key, tensor in task_state(network, task).items()}
        if stage == self.stages(first=False)[-1].name:
            take_state(network, task, trials.best)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        super().end_task(networks, task, probe)
        self._trials = None

    def figures(self) -> dict[str, float]:
        """Units that the task adds, in all layers."""
        if self._network is None or len(tasks := task_names(self._network)) < 2:
            return {}
        return {"added-units": float(sum(units_of(self._network, tasks[-1])))}

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self._trials is None else self._trials.tensors()

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self._trials = None
        if state:
            drawn, rewarded = state["facts"].tolist()
            trials = self._trials = self._begin_trials(networks[CLASSIFIER], int(drawn))
            trials.controller.load_tensors(_below(CONTROLLER, state))
            trials.units, trials.rewarded = state["units"].tolist(), rewarded
            trials.best = {key: tensor.clone() for key, tensor in _below(BEST, state).items()}


def each_of(numbers: Sequence[int], layers: int) -> list[int]:
    """A number for every layer, where one stands for all."""
    return list(numbers) * layers if len(numbers) == 1 else list(numbers)


def check_some_units(key: str, numbers: Sequence[int]) -> None:
    """Refuse an empty list."""
    if not numbers:
        raise UserError(f"method.{key}: say how many units for each layer but the head, or one number for all")


def check_units(key: str, numbers: Sequence[int], links: Sequence[Link]) -> None:
    """Refuse numbers that are neither one for all layers but the head nor one for each."""
    if len(numbers) not in (1, len(links) - 1):
        raise UserError(
            f"method.{key}: {len(numbers)} numbers for {len(links) - 1} layers that grow: "
            f"{', '.join(link.name for link in links[:-1])}"
        )


def _below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
