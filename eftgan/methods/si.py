"""Synaptic intelligence (Zenke et al. 2017)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.config import NonNegative, Positive
from eftgan.methods.base import Networks, Probe
from eftgan.methods.quadratic import PathPenalty, values, zeros


@dataclass
class Si(PathPenalty):
    """Synaptic intelligence, eq. 4: L + c * sum Omega (theta~ - theta)^2, Omega from the path of training."""

    slots: ClassVar[tuple[str, ...]] = ("importance", "anchor", "path", "start")

    name: Literal["si"] = "si"
    strength: Annotated[NonNegative, Doc("c of eq. 4")] = 1.0
    damping: Annotated[Positive, Doc("xi of eq. 5")] = 0.1

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for role in networks:
            parameters = self.protected(role, networks)
            self.memory["path"][role] = zeros(parameters)
            self.memory["start"][role] = values(parameters)

    def follow(self, role: str, name: str, gradient: Tensor, moved: Tensor) -> None:
        self.memory["path"][role][name] -= gradient * moved  # eq. 3: omega, the loss that this parameter took off

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        for role in networks:
            parameters = self.protected(role, networks)
            omega = {name: self._omega(role, name, parameter) for name, parameter in parameters.items()}
            earlier = self.memory["importance"].get(role) or zeros(parameters)
            self.memory["importance"][role] = {name: earlier[name] + omega[name] for name in omega}
            self.memory["anchor"][role] = values(parameters)
            del self.memory["path"][role], self.memory["start"][role]

    def _omega(self, role: str, name: str, parameter: nn.Parameter) -> Tensor:
        moved = parameter.detach() - self.memory["start"][role][name]
        omega = self.memory["path"][role][name] / (moved**2 + self.damping)  # eq. 5, one task's term
        return omega.clamp_min(0)  # as the authors' code: a step uphill protects nothing
