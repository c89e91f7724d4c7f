"""Synaptic intelligence (Zenke et al. 2017)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor
from typing_extensions import Doc

from eftgan.config import NonNegative, Positive
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.quadratic import PathPenalty, values, zeros


@dataclass
class Si(PathPenalty):
    """Synaptic intelligence, eq. 4: L + c * sum Omega (theta~ - theta)^2, Omega from the path of training.

    omega is the running sum of -gradient * step of the task's own loss (eq. 3); a task adds omega / (Delta^2 + xi) to
    Omega, with Delta the way from its start to its end (eq. 5). As in the authors' code, Omega does not sink below 0.
    """

    title: ClassVar[str] = "SI"
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
            terms = {name: self._term(role, name) for name in parameters}
            earlier = self.memory["importance"].get(role) or zeros(parameters)
            self.memory["importance"][role] = {name: (earlier[name] + terms[name]).clamp_min(0) for name in terms}
            self.memory["anchor"][role] = values(parameters)
            del self.memory["path"][role], self.memory["start"][role]

    def _term(self, role: str, name: str) -> Tensor:
        """What the finished task adds to Omega: eq. 5; less than nothing where the parameter went uphill."""
        moved = self.reached[role][name] - self.memory["start"][role][name]
        return self.memory["path"][role][name] / (moved**2 + self.damping)
