"""Efficient feature transformations (Verma et al., CVPR 2021)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor
from typing_extensions import Doc

from eftgan.adapters import PARTS, AdapterConfig, shared_state, task_names, task_state
from eftgan.adapters.bank import Part
from eftgan.methods.base import Method, Networks


@dataclass
class Eft(Method):
    """theta trains in the first task and is frozen; every task owns its transforms, normalisation and heads."""

    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)

    name: Literal["eft"] = "eft"
    init: Annotated[str, Doc("where tau_t starts: previous, identity, random, or a task's name")] = "previous"
    first_init: Annotated[Literal["identity", "random"], Doc("where tau_1 starts")] = "identity"
    discriminator: Annotated[
        Literal["eft", "full"], Doc("eft: as the paper; full: the discriminators train whole, in no task's file")
    ] = "eft"
    base: Annotated[Literal["train", "pretrained"], Doc("pretrained: theta is frozen from the first task on")] = (
        "train"
    )

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return config

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init or self.init, head_size=head_size)

    def _adapts(self, role: str) -> bool:
        return self.discriminator == "eft" or not role.startswith("discriminator")

    def owned_by_tasks(self, role: str) -> Iterable[Part]:
        return self.owns if self._adapts(role) else ()

    def trains_shared(self, role: str, first: bool) -> bool:
        return not self._adapts(role) or (first and self.base == "train")

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        tensors = {}
        for role, network in networks.items():
            if self._adapts(role):
                names = task_names(network)
                parts = {f"task {other}": task_state(network, other) for other in names if other != task}
                if not self.trains_shared(role, names[0] == task):
                    parts["theta"] = shared_state(network)
                tensors |= {
                    f"{role}: {part}: {key}": t for part, state in parts.items() for key, t in state.items()
                }
        return tensors

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {
            f"{role}/{key}": tensor
            for role, network in networks.items()
            if self._adapts(role)
            for key, tensor in task_state(network, task).items()
        }
