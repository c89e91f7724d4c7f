"""Entropy at a temperature of each task's own."""

from typing import ClassVar

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Said
from eftgan.evaluation.rules.confidence import Entropy, entropy

COLDEST, HOTTEST = 1e-2, 1e2
HALVINGS = 40


def fit_temperature(logits: Tensor, labels: Tensor) -> Tensor:
    """The temperature () at which softmax(logits / T) has the least cross-entropy (Guo et al., ICML 2017).

    The cross-entropy is convex in 1 / T; its slope, E[logit] - logit of the label, is brought to 0 by halving.
    """
    logits = logits.double()
    right = logits.gather(1, labels[:, None]).mean()
    low, high = torch.tensor(1 / HOTTEST).double(), torch.tensor(1 / COLDEST).double()
    for _ in range(HALVINGS):
        middle = (low * high).sqrt()
        slope = ((logits * middle).softmax(1) * logits).sum(1).mean() - right
        low, high = (low, middle) if slope > 0 else (middle, high)
    return (1 / (low * high).sqrt()).float()


class Calibrated(Entropy):
    """-H(softmax(logits / T_t)), T_t fitted on the task's own training images."""

    name: ClassVar[str] = "calibrated"
    explanation: ClassVar[str] = "whose softmax, at the task's fitted temperature, has the least entropy"

    @property
    def keeps(self) -> tuple[str, ...]:
        return (f"{self.name}/temperature",)

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        return {self.keeps[0]: fit_temperature(own.logits, labels)}

    def score(self, said: Said) -> Tensor:
        return -entropy(said.logits / said.kept[self.keeps[0]])
