"""Riemannian walk (Chaudhry et al. 2018), without stored images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import Doc

from eftgan.config import Count, NonNegative, Positive, Share
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.quadratic import PathPenalty, Tensors, values, zeros


@dataclass
class RWalk(PathPenalty):
    """Riemannian walk: L + lambda * sum (F + s) (theta - theta~)^2.

    F is the Fisher as a moving average over stretches of every_steps steps, alpha * (the stretch's mean of gradient^2)
    + (1 - alpha) * F. s adds up, over the same stretches, how much loss a parameter took off (the sum of -gradient *
    step; less than 0 counts as 0) per distance in the Riemannian manifold, 1/2 F (the way of the stretch)^2 + epsilon.
    A task's s is averaged with what came before. For the penalty both are divided by their largest value.
    """

    title: ClassVar[str] = "RWalk"
    slots: ClassVar[tuple[str, ...]] = (
        "importance", "anchor", "fisher", "squares", "scores", "gain", "path", "corner",
    )  # fmt: skip

    name: Literal["rwalk"] = "rwalk"
    strength: Annotated[NonNegative, Doc("lambda")] = 10.0
    alpha: Annotated[Share, Doc("weight of the newest stretch's squared gradients in the Fisher")] = 0.9
    every_steps: Annotated[Count, Doc("Delta t: the steps of a stretch, after which Fisher and score are updated")] = 50
    damping: Annotated[Positive, Doc("epsilon in the score's denominator")] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.steps: dict[str, int] = {}

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for role in networks:
            parameters = self.protected(role, networks)
            self.steps[role] = 0
            self.memory["fisher"].setdefault(role, zeros(parameters))
            for slot in ("path", "gain", "squares"):
                self.memory[slot][role] = zeros(parameters)
            self.memory["corner"][role] = values(parameters)

    def follow(self, role: str, name: str, gradient: Tensor, moved: Tensor) -> None:
        self.memory["squares"][role][name] += gradient**2
        self.memory["gain"][role][name] -= gradient * moved

    def after_step(self, role: str, networks: Networks) -> None:
        super().after_step(role, networks)
        self.steps[role] += 1
        if self.steps[role] % self.every_steps == 0:
            self._turn_corner(role, self.every_steps)

    def _turn_corner(self, role: str, steps: int) -> None:
        """Take a stretch of so many steps into the Fisher and the scores s; a short one weighs less in the Fisher."""
        now, weight = self.reached[role], self.alpha * steps / self.every_steps
        fisher, squares, gain, corner = (self.memory[slot][role] for slot in ("fisher", "squares", "gain", "corner"))
        for name, path in self.memory["path"][role].items():
            fisher[name].lerp_(squares[name] / steps, weight)
            squares[name].zero_()
            distance = 0.5 * fisher[name] * (now[name] - corner[name]) ** 2
            path += gain[name].clamp_min(0) / (distance + self.damping)
            gain[name].zero_()
        self.memory["corner"][role] = now

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        for role in networks:
            if rest := self.steps[role] % self.every_steps:
                self._turn_corner(role, rest)
            scores, earlier = self.memory["path"].pop(role), self.memory["scores"].get(role)
            if earlier is not None:  # the mean of old and new scores
                scores = {name: (scores[name] + earlier[name]) / 2 for name in scores}
            self.memory["scores"][role] = scores
            fisher, normal = _to_unit(self.memory["fisher"][role]), _to_unit(scores)
            self.memory["importance"][role] = {name: fisher[name] + normal[name] for name in fisher}
            self.memory["anchor"][role] = values(self.protected(role, networks))
            for slot in ("gain", "squares", "corner"):
                del self.memory[slot][role]

    def state_dict(self) -> Tensors:
        return super().state_dict() | {f"steps/{role}": torch.tensor(count) for role, count in self.steps.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        counts = {key: value for key, value in state.items() if key.startswith("steps/")}
        super().load_state_dict({key: state[key] for key in state if key not in counts}, networks)
        self.steps = {key.removeprefix("steps/"): int(value) for key, value in counts.items()}
        for role, gain in self.memory["gain"].items():  # states of earlier versions hold no sums of squares
            self.memory["squares"].setdefault(role, {name: torch.zeros_like(each) for name, each in gain.items()})


def _to_unit(tensors: Tensors) -> Tensors:
    """All values of a network divided by the largest, so that they lie between 0 and 1."""
    largest = max(float(tensor.max()) for tensor in tensors.values())
    return {name: tensor / largest if largest > 0 else tensor for name, tensor in tensors.items()}
