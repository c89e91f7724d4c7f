"""Continual learning with hypernetworks (von Oswald et al., ICLR 2020)."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from typing_extensions import Doc

from eftgan.adapters import PARTS, AdapterConfig, task_names
from eftgan.adapters.bank import Part
from eftgan.adapters.hypernetwork import (
    NAME,
    Hypernetwork,
    Written,
    hypernetwork_of,
    write_by_hypernetwork,
    written_weights,
)
from eftgan.adapters.layers import Layer, has_own_weight
from eftgan.config import Count, NonNegative, Positive
from eftgan.errors import UserError
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, Group, Networks, Probe
from eftgan.methods.parameters import parameters_in_common, state_of_others
from eftgan.names import CLASSIFIER


def drift(new: Sequence[Tensor], old: Sequence[Tensor]) -> Tensor:
    """|h(e_t, theta) - h(e_t, theta*)|^2, a sum over weights, a mean over the earlier tasks t."""
    return torch.stack([(now - then).square().sum() for now, then in zip(new, old, strict=True)]).mean()


@dataclass
class Hnet(Method):
    """A hypernetwork writes the weights of every task, and goes on writing those of earlier tasks as it did.

    Task t computes with W + h(e_t, c_j; theta): W is the network as it was built and never trains, theta and the
    embeddings c_j of the chunks train in every task. Embeddings e_t, biases, normalisation and head are per task.
    """

    title: ClassVar[str] = "HNet"
    only_for: ClassVar[str | None] = CLASSIFIER  # every step writes all weights anew, too slow for a generator
    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)

    name: Literal["hnet"] = "hnet"
    strength: Annotated[NonNegative, Doc("beta: weight of the drift of what is written for earlier tasks")] = 0.05
    embedding: Annotated[Count, Doc("length of the embeddings of tasks and of chunks")] = 32
    hidden: Annotated[Count, Doc("width of the hypernetwork's hidden layer")] = 64
    chunk: Annotated[
        Count | None, Doc("weights written at a time; null: so that the hypernetwork is as large as the network")
    ] = None
    hypernetwork_rate: Annotated[
        Positive, Doc("learning rate of the hypernetwork and of embeddings, as a multiple of the network's")
    ] = 1.0

    def __post_init__(self) -> None:
        self.before: Hypernetwork | None = None  # as the task found it
        self._targets: list[Tensor] = []  # what it wrote for every earlier task
        self._writing: set[nn.Parameter] = set()  # parameters of the hypernetwork, and the task's embeddings

    @property
    def init(self) -> str:
        return "random"

    @property
    def first_init(self) -> str:
        return "random"

    @property
    def own_first_task(self) -> dict[str, str]:
        return {
            "adapters": self.name,
            **{key: str(getattr(self, key)) for key in ("embedding", "hidden", "chunk", "hypernetwork_rate")},
        }

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, parts=("norms", "heads"))

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        super().prepare(networks, adapters)
        network, excluded = networks[CLASSIFIER], adapters[CLASSIFIER].exclude
        layers: dict[str, Layer] = {}
        for name in parameters_in_common(network, set(PARTS)):
            owner = name.rpartition(".")[0]
            layer, left_out = network.get_submodule(owner), any(fnmatchcase(owner, each) for each in excluded)
            if left_out or not isinstance(layer, _ConvNd | nn.Linear) or not has_own_weight(layer):
                raise UserError(
                    f"method.name: hnet cannot write the {CLASSIFIER}'s {name}, and nothing else would train it; only "
                    "convolutions, linear layers and normalisations with weights of their own are known, and none may "
                    "stand in adapters.exclude"
                )
            layers[owner] = layer
        write_by_hypernetwork(
            network, list(layers.values()), embedding=self.embedding, hidden=self.hidden, chunk=self.chunk
        )

    def trains_shared(self, role: str, first: bool) -> bool:
        """Of what tasks share, only the hypernetwork trains; `trainable` adds it."""
        return False

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        network = networks[CLASSIFIER]
        self.before = copy.deepcopy(hypernetwork_of(network)) if len(task_names(network)) > 1 else None

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        network = networks[CLASSIFIER]
        own, hypernetwork = super().trainable(networks, task)[CLASSIFIER], hypernetwork_of(network)
        theta = list(hypernetwork.requires_grad_(True).parameters())
        self._writing = {*theta, *(module.e for module in network.modules() if isinstance(module, Written))}
        with torch.no_grad():
            before = self.before.to(theta[0].device) if self.before is not None else None
            earlier = task_names(network)[:-1] if before is not None else []
            self._targets = [written_weights(network, each, before) for each in earlier]
        return {CLASSIFIER: [*own, *theta]}

    def groups(self, role: str, parameters: list[nn.Parameter]) -> list[Group]:
        """What writes has no weight decay, which would move what is written for earlier tasks."""
        writing = [parameter for parameter in parameters if parameter in self._writing]
        others = [parameter for parameter in parameters if parameter not in self._writing]
        return [Group(others), Group(writing, rate=self.hypernetwork_rate, decay=0.0)]

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        if not self._targets:
            return 0.0
        network = networks[role]
        now = [written_weights(network, task) for task in task_names(network)[:-1]]
        return self.strength * drift(now, self._targets)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        self.before, self._targets = None, []

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        """Other tasks' own parts, and W."""
        state = state_of_others(networks[CLASSIFIER], task, theta=True)
        return {key: tensor for key, tensor in state.items() if not key.startswith(f"theta: {NAME}.")}

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.before is None else self.before.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.before = copy.deepcopy(hypernetwork_of(networks[CLASSIFIER])) if state else None
        if self.before is not None:
            self.before.load_state_dict(state)
