"""Efficient feature transformations (Verma et al., CVPR 2021)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor
from typing_extensions import Doc

from eftgan.adapters import PARTS, AdapterConfig, task_names, task_state
from eftgan.adapters.bank import Part
from eftgan.config import OnlyFor, Positive
from eftgan.errors import UserError
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, Networks, Probe
from eftgan.methods.feature_margin import FeatureMargin
from eftgan.methods.parameters import state_of_others
from eftgan.names import CLASSIFIER


@dataclass
class Eft(Method):
    """theta trains in the first task and is frozen; every task owns its transforms, normalisation and heads."""

    title: ClassVar[str] = "EFT"
    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)

    name: Literal["eft"] = "eft"
    init: Annotated[
        str, Doc("where tau_t starts: previous, identity, random, a task's name, or nearest (of the likest images)")
    ] = "previous"
    first_init: Annotated[Literal["identity", "random"], Doc("where tau_1 starts")] = "identity"
    discriminator: Annotated[
        Literal["eft", "full", "restart"],
        Doc(
            "eft: as the paper; full: the discriminators train whole, in no task's file; restart: the same, and every "
            "later task begins with those of the first"
        ),
        OnlyFor("gan"),
    ] = "eft"
    discriminator_rate: Annotated[
        Positive,
        Doc("tasks after the first: learning rate of whole discriminators, as a multiple of the training's"),
        OnlyFor("gan"),
    ] = 1.0
    base: Annotated[Literal["train", "pretrained"], Doc("pretrained: theta is frozen from the first task on")] = "train"
    margin: Annotated[
        FeatureMargin | None, Doc("keep the features of the tasks apart; null: off"), OnlyFor("classifier")
    ] = None

    def __post_init__(self) -> None:
        if self.discriminator == "eft" and self.discriminator_rate != 1.0:
            raise UserError(
                "method.discriminator_rate is for whole discriminators (discriminator: full or restart); later_rate "
                "serves discriminators with transforms"
            )
        self.restarts: dict[str, dict[str, Tensor]] = {}  # by role, the state that every later task begins with

    @property
    def own_first_task(self) -> dict[str, str]:
        usual = {"first_init": "identity", "base": "train"}
        return {key: getattr(self, key) for key in usual if getattr(self, key) != usual[key]}

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return config

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for role, state in self.restarts.items():
            networks[role].load_state_dict(state)
        if self.margin:
            self.margin.begin()

    def _adapts(self, role: str) -> bool:
        return self.discriminator == "eft" or not role.startswith("discriminator")

    def owned_by_tasks(self, role: str) -> Iterable[Part]:
        return self.owns if self._adapts(role) else ()

    def trains_shared(self, role: str, first: bool) -> bool:
        return not self._adapts(role) or (first and self.base == "train")

    def rate(self, role: str, first: bool) -> float:
        if self._adapts(role):
            return super().rate(role, first)
        return 1.0 if first else self.discriminator_rate

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        if role != CLASSIFIER or self.margin is None:
            return 0.0
        earlier = task_names(networks[role])[:-1]
        if not earlier:
            return 0.0
        assert batch.features is not None  # a classifier's batches have them
        return self.margin.loss(networks[role], earlier, batch.inputs, batch.features)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        if self.margin and CLASSIFIER in networks:
            self.margin.remember(networks[CLASSIFIER], task, probe.inputs(CLASSIFIER))
        if self.discriminator == "restart" and not self.restarts:
            self.restarts = {
                role: {key: tensor.clone() for key, tensor in network.state_dict().items()}
                for role, network in networks.items()
                if not self._adapts(role)
            }

    def figures(self) -> dict[str, float]:
        return {"active-margin": self.margin.active_share} if self.margin else {}

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {
            f"{role}: {key}": tensor
            for role, network in networks.items()
            if self._adapts(role)
            for key, tensor in state_of_others(
                network, task, theta=not self.trains_shared(role, task_names(network)[0] == task)
            ).items()
        }

    @property
    def files_suffice(self) -> bool:
        """Not where discriminators train whole, which no file holds, nor where the margin remembers statistics."""
        return self.discriminator == "eft" and not (self.margin and self.margin.statistics == "stored")

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {
            f"{role}/{key}": tensor
            for role, network in networks.items()
            if self._adapts(role)
            for key, tensor in task_state(network, task).items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        margin = self.margin.state_dict() if self.margin else {}
        return margin | {f"{role}/{key}": t for role, state in self.restarts.items() for key, t in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        if self.discriminator == "restart" and state:
            self.restarts = {
                role: {key: state[f"{role}/{key}"] for key in network.state_dict()}
                for role, network in networks.items()
                if not self._adapts(role)
            }
        if self.margin:
            self.margin.load_state_dict(state)
