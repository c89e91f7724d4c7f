"""Feature distance maximisation: a margin between a task's features and those of earlier tasks for its images."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import using_task
from eftgan.adapters.modes import evaluating
from eftgan.config import NonNegative
from eftgan.errors import UserError
from eftgan.methods.heads import features_of

VARIANCE_FLOOR = 1e-4
L2_SCALE = 128.0  # of the authors' notebooks
Gaussian = tuple[Tensor, Tensor]  # mean and variance, (F,) each


def gaussian(features: Tensor) -> Gaussian:
    """Mean and floored variance of a batch of features (B, F)."""
    return features.mean(0), features.var(0, correction=0).clamp_min(VARIANCE_FLOOR)


def gaussian_kl(p: Gaussian, q: Gaussian, reduce: Literal["sum", "mean"] = "sum") -> Tensor:
    """KL(P || Q) of Gaussians with diagonal covariance, summed or averaged over the features."""
    (mean_p, var_p), (mean_q, var_q) = p, q
    terms = 0.5 * ((var_p + (mean_p - mean_q) ** 2) / var_q - 1 + torch.log(var_q / var_p))
    return terms.sum() if reduce == "sum" else terms.mean()


@dataclass
class FeatureMargin:
    """L_M of the paper, eq. 7: sum over earlier tasks i of max(Delta - KL(P_t || Q_i), 0)."""

    form: Annotated[Literal["kl", "l2"], Doc("kl: eq. 7; l2: the distance of the authors' notebooks")] = "kl"
    strength: Annotated[NonNegative, Doc("lambda of eq. 8")] = 0.05
    delta: Annotated[NonNegative, Doc("the margin Delta")] = 1.0
    reduce: Annotated[
        Literal["sum", "mean"], Doc("over features; a sum over hundreds of them mostly exceeds the margin")
    ] = "sum"
    statistics: Annotated[
        Literal["live", "stored"],
        Doc("Q_i: the current batch under tau_i, or the statistics kept when task i ended: cheaper"),
    ] = "live"

    def __post_init__(self) -> None:
        if self.form == "l2" and self.statistics == "stored":
            raise UserError("method.margin: form l2 compares image by image, so it needs statistics: live")
        self.stored: dict[str, Gaussian] = {}
        self.begin()

    def begin(self) -> None:
        """Count the active steps anew."""
        self.counts = torch.zeros(2, dtype=torch.int64)  # steps with an active hinge, all steps

    def loss(self, network: nn.Module, earlier: list[str], inputs: Tensor, features: Tensor) -> Tensor:
        """lambda * L_M for the current batch; `features` are those under the task in training."""
        p = gaussian(features)
        hinges = [(self.delta - self._distance(network, task, inputs, features, p)).clamp_min(0) for task in earlier]
        total = torch.stack(hinges).sum()  # eq. 7
        if self.form == "l2":
            total = total / len(earlier)
        self.counts += torch.tensor([int(total.detach() > 0), 1])
        return self.strength * total  # the second term of eq. 8

    def _distance(self, network: nn.Module, task: str, inputs: Tensor, features: Tensor, p: Gaussian) -> Tensor:
        if self.statistics == "stored":
            mean, variance = (tensor.to(features.device) for tensor in self.stored[task])
            return gaussian_kl(p, (mean, variance), self.reduce)
        theirs = features_under(network, task, inputs)
        if self.form == "l2":
            return (features - theirs).norm() / L2_SCALE
        return gaussian_kl(p, gaussian(theirs), self.reduce)

    def remember(self, network: nn.Module, task: str, batches: Iterable[Tensor]) -> None:
        """Keep the statistics of a finished task, where they are wanted."""
        if self.statistics == "stored":
            self.stored[task] = gaussian(torch.cat([features_under(network, task, batch) for batch in batches]))

    @property
    def active_share(self) -> float:
        """Share of steps in which the hinge was active."""
        active, steps = self.counts.tolist()
        return active / max(1, steps)

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"{task}/{i}": tensor for task, pair in self.stored.items() for i, tensor in enumerate(pair)}
        return {**state, "counts": self.counts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.counts = state["counts"].clone()
        tasks = dict.fromkeys(key.rpartition("/")[0] for key in state if "/" in key)
        self.stored = {task: (state[f"{task}/0"].clone(), state[f"{task}/1"].clone()) for task in tasks}


def features_under(network: nn.Module, task: str, inputs: Tensor) -> Tensor:
    """Pre-output features of images under a finished task, in eval mode: its statistics must not move."""
    with using_task(network, task), evaluating(network):
        return features_of(network, inputs)
