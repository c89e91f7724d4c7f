"""Memory aware synapses (Aljundi et al. 2018)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor
from typing_extensions import Doc

from eftgan.adapters.modes import evaluating
from eftgan.config import Count, NonNegative
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.quadratic import QuadraticPenalty, average_gradients, values, zeros
from eftgan.names import CLASSIFIER


@dataclass
class Mas(QuadraticPenalty):
    """Memory aware synapses, eq. 3: L + lambda * sum Omega (theta - theta*)^2, Omega: the output's sensitivity.

    Omega is the mean over images of |d ||F(x)||^2 / d theta| (eq. 2, with the squared l2 norm of the output), added up
    over tasks.
    """

    title: ClassVar[str] = "MAS"
    only_for: ClassVar[str | None] = "classifier"

    name: Literal["mas"] = "mas"
    strength: Annotated[NonNegative, Doc("lambda of eq. 3")] = 0.1
    samples: Annotated[Count, Doc("images whose gradients make the importance")] = 256

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        network, parameters = networks[CLASSIFIER], self.protected(CLASSIFIER, networks)

        def squared_lengths() -> Iterator[Tensor]:
            with evaluating(network):
                for batch in probe.inputs(CLASSIFIER):
                    for image in batch.split(1):
                        yield network(image).square().sum()

        omega = average_gradients(squared_lengths(), parameters, Tensor.abs, self.samples)
        earlier = self.memory["importance"].get(CLASSIFIER) or zeros(parameters)
        self.memory["importance"][CLASSIFIER] = {name: earlier[name] + omega[name] for name in omega}
        self.memory["anchor"][CLASSIFIER] = values(parameters)
