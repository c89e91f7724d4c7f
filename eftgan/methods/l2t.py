"""L2-transfer: stay near the weights of the task before."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor
from typing_extensions import Doc

from eftgan.config import NonNegative
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.quadratic import QuadraticPenalty, values


@dataclass
class PullToLast(QuadraticPenalty):
    """L + lambda/2 |theta - theta_{t-1}|^2: every weight is as important as any other."""

    factor: ClassVar[float] = 0.5

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        for role in networks:
            anchor = values(self.protected(role, networks))
            self.memory["anchor"][role] = anchor
            self.memory["importance"][role] = {name: one_like(tensor) for name, tensor in anchor.items()}


def one_like(tensor: Tensor) -> Tensor:
    """The number 1, where the tensor is: it stands for a whole tensor of ones."""
    return tensor.new_ones(())


@dataclass
class L2Transfer(PullToLast):
    """L2-transfer: L + lambda/2 |theta - theta_{t-1}|^2. EWC with importance 1 and the latest anchor alone."""

    title: ClassVar[str] = "L2-transfer"

    name: Literal["l2t"] = "l2t"
    strength: Annotated[NonNegative, Doc("lambda; 0.5 in the code of DEN")] = 0.5
