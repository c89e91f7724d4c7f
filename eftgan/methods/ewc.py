"""Elastic weight consolidation (Kirkpatrick et al. 2017)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor
from typing_extensions import Doc

from eftgan.config import Count, NonNegative, Share
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.quadratic import QuadraticPenalty, average_gradients, moved_mean, values


@dataclass
class Ewc(QuadraticPenalty):
    """Elastic weight consolidation, eq. 3: L + sum over tasks i of lambda/2 * F_i (theta - theta*_i)^2.

    form per-task: all quadratics of eq. 3. Their sum is again one quadratic, with the Fishers added up and the
    anchor at their weighted mean (and a constant, which has no gradient), so memory does not grow with the tasks.
    form online (Schwarz et al. 2018): one anchor, the latest, and F = decay * F + F_t.
    """

    title: ClassVar[str] = "EWC"
    factor: ClassVar[float] = 0.5

    name: Literal["ewc"] = "ewc"
    strength: Annotated[NonNegative, Doc("lambda of eq. 3")] = 100.0
    form: Annotated[Literal["per-task", "online"], Doc("a quadratic for every task, or one that moves on")] = "per-task"
    decay: Annotated[Share, Doc("online: what remains of the earlier Fisher")] = 1.0
    samples: Annotated[Count, Doc("images whose gradients make the Fisher")] = 256

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        importance, anchor = self.memory["importance"], self.memory["anchor"]
        for role in networks:
            parameters = self.protected(role, networks)
            # Diagonal of the empirical Fisher: the mean of squared gradients, sample by sample.
            fisher = average_gradients(probe.losses(role), parameters, Tensor.square, self.samples)
            now, earlier = values(parameters), importance.get(role)
            if earlier is None:
                importance[role], anchor[role] = fisher, now
            elif self.form == "online":
                importance[role] = {name: self.decay * earlier[name] + fisher[name] for name in fisher}
                anchor[role] = now
            else:
                importance[role] = {name: earlier[name] + fisher[name] for name in fisher}
                anchor[role] = {
                    name: moved_mean(anchor[role][name], now[name], fisher[name], total)
                    for name, total in importance[role].items()
                }
