"""Weights that are frozen after the first task, and parts that every task owns: EFT and its relatives."""

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
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.parameters import state_of_others

WHOLE = ("full", "restart")  # of `discriminator`: these train whole in every task


@dataclass
class OwnParts(Method):
    """Every task owns its transforms, normalisation and heads; what is frozen is watched, and files hold the rest."""

    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return config

    def _adapts(self, role: str) -> bool:
        """Whether tasks own parts of this network; else it trains whole, in no task's file."""
        return True

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
        return True

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {
            f"{role}/{key}": tensor
            for role, network in networks.items()
            if self._adapts(role)
            for key, tensor in task_state(network, task).items()
        }


@dataclass
class FrozenBase(OwnParts):
    """theta trains in the first task and is frozen; every task owns its transforms, normalisation and heads."""

    discriminator: Annotated[str, Doc("one of WHOLE, or a method's own way"), OnlyFor("gan")] = "full"
    discriminator_rate: Annotated[
        Positive,
        Doc(
            "tasks after the first (base: pretrained: all): learning rate of whole discriminators, as a multiple of "
            "the training's"
        ),
        OnlyFor("gan"),
    ] = 1.0
    base: Annotated[Literal["train", "pretrained"], Doc("pretrained: theta is frozen from the first task on")] = "train"

    def __post_init__(self) -> None:
        if self.discriminator not in WHOLE and self.discriminator_rate != 1.0:
            raise UserError(
                "method.discriminator_rate is for whole discriminators (discriminator: full or restart); later_rate "
                "serves discriminators with transforms"
            )
        self.restarts: dict[str, dict[str, Tensor]] = {}  # by role, the state that every later task begins with
        self.whole: set[str] = set()  # roles of networks that train whole

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        self.whole |= {role for role in networks if not self._adapts(role)}
        super().prepare(networks, adapters)

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for role, state in self.restarts.items():
            networks[role].load_state_dict(state)

    def _adapts(self, role: str) -> bool:
        return self.discriminator not in WHOLE or not role.startswith("discriminator")

    def owned_by_tasks(self, role: str) -> Iterable[Part]:
        return self.owns if self._adapts(role) else ()

    def trains_shared(self, role: str, first: bool) -> bool:
        return not self._adapts(role) or (first and self.base == "train")

    @property
    def first_rates(self) -> dict[str, float]:
        rates = super().first_rates
        return {**rates, "discriminator_rate": self.discriminator_rate} if rates else {}

    def rate(self, role: str, first: bool) -> float:
        if self._adapts(role):
            return super().rate(role, first)
        return 1.0 if first and self.base == "train" else self.discriminator_rate

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        if self.discriminator == "restart" and not self.restarts:
            self.restarts = {
                role: {key: tensor.clone() for key, tensor in network.state_dict().items()}
                for role, network in networks.items()
                if not self._adapts(role)
            }

    @property
    def files_suffice(self) -> bool:
        """Not where discriminators train whole, which no file holds."""
        return not self.whole

    @property
    def lets_go(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{role}/{key}": tensor for role, state in self.restarts.items() for key, tensor in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        if self.discriminator == "restart" and state:
            self.restarts = {
                role: {key: state[f"{role}/{key}"] for key in network.state_dict()}
                for role, network in networks.items()
                if not self._adapts(role)
            }
