"""Calibrating CNNs for lifelong learning (Singh et al., NeurIPS 2020)."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, Transform, task_modules, task_names
from eftgan.config import OnlyFor
from eftgan.methods.exchange import Networks
from eftgan.methods.frozen_base import FrozenBase


@dataclass
class Ccll(FrozenBase):
    """CCLL: behind every convolution of the frozen base, a task owns a spatial and a channel-wise calibration.

    F1 = F + dw * F with a depthwise 3x3 convolution, F2 = BN(F1), and F2 * sigmoid(BN'(w * mean of the map)): 12
    numbers per channel, beside normalisation and head. Base and calibrations of the first task train together.
    """

    title: ClassVar[str] = "CCLL"

    name: Literal["ccll"] = "ccll"
    start: Annotated[
        Literal["previous", "random"],
        Doc("where a later task's calibrations start: with those of the task before, or random, as the first task's"),
    ] = "previous"
    discriminator: Annotated[
        Literal["ccll", "full", "restart"],
        Doc("ccll: calibrated as the generator is; full, restart: the discriminators train whole, as with eft"),
        OnlyFor("gan"),
    ] = "full"

    @property
    def init(self) -> str:
        return "previous" if self.start == "previous" else "identity"

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"adapters": self.name} | ({"base": self.base} if self.base != "train" else {})

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        if not self._adapts(role):
            return dataclasses.replace(config, parts=("norms", "heads"))
        return dataclasses.replace(config, kind="ccll", gate="channel", options={})

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for role, network in networks.items():
            first = task_names(network) == [task]
            if self._adapts(role) and (first or (self.start == "random" and init is None)):
                for calibration in task_modules(network, task, "transforms"):
                    assert isinstance(calibration, Transform)
                    calibration.reset_parameters()
