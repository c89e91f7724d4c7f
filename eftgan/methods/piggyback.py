"""Piggyback (Mallya, Davis and Lazebnik, ECCV 2018)."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, task_names
from eftgan.config import OnlyFor
from eftgan.methods.exchange import Networks
from eftgan.methods.frozen_base import FrozenBase
from eftgan.methods.masks import LearnsMasks


@dataclass
class Piggyback(LearnsMasks, FrozenBase):
    """Piggyback: a later task uses those weights of the first one's network whose score is above a threshold.

    V_t = W * [r_t > 0.005], dL/dr := dL/dV * W; all scores start at 0.01. The first task trains W without a mask.
    """

    title: ClassVar[str] = "Piggyback"

    name: Literal["piggyback"] = "piggyback"
    start: Annotated[
        Literal["ones", "previous"], Doc("the mask that a later task starts with: all weights, or the last task's")
    ] = "ones"
    norms: Annotated[
        Literal["own", "first"],
        Doc("normalisation: every task's own, or that of the first task with its statistics, as the authors have it"),
        OnlyFor("classifier"),
    ] = "own"
    discriminator: Annotated[
        Literal["full", "restart"],
        Doc("the discriminators train whole; restart: every later task begins with those of the first"),
        OnlyFor("gan"),
    ] = "full"

    @property
    def init(self) -> str:
        return "identity" if self.start == "ones" else "previous"

    @property
    def own_first_task(self) -> dict[str, str]:
        own = {"adapters": "mask", "norms": self.norms}
        return own if self.base == "train" else {**own, "base": self.base, "score_rate": str(self.score_rate)}

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        if not self._adapts(role):
            return dataclasses.replace(config, parts=("norms", "heads"))
        shared = dataclasses.replace(config, parts=("transforms", "heads")) if self.norms == "first" else config
        return dataclasses.replace(shared, kind="mask", options={})

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for role, network in networks.items():
            if not self.trains_shared(role, first=task_names(network) == [task]):
                for mask in self.masks(role, network, task).values():
                    mask.begin()

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        for role, network in networks.items():
            shared = self.norms == "first" and self._adapts(role)
            if shared and not self.trains_shared(role, first=task_names(network)[0] == task):
                for module in network.modules():
                    if isinstance(module, _BatchNorm):
                        module.eval()
        return super().trainable(networks, task)
