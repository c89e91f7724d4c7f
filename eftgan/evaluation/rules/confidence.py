"""Rules that look at the logits alone: nothing is fitted, nothing kept."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Rule, Said


def entropy(logits: Tensor) -> Tensor:
    """Entropy (B,) of the softmax."""
    logs = logits.log_softmax(1)
    return -(logs.exp() * logs).sum(1)


class Entropy(Rule):
    """-H(softmax): the paper's rule."""

    name: ClassVar[str] = "entropy"
    explanation: ClassVar[str] = "whose softmax has the least entropy"

    def score(self, said: Said) -> Tensor:
        return -entropy(said.logits)

    def certainties(self, said: Sequence[Said]) -> Tensor:
        """exp(-entropy): 1 where all of the softmax is on one class, 1/k where it is even over k."""
        return self.scores(said).exp()


class MaxSoftmax(Rule):
    """The largest probability (Hendrycks and Gimpel, ICLR 2017)."""

    name: ClassVar[str] = "max-softmax"
    explanation: ClassVar[str] = "that gives its best class the largest probability"

    def score(self, said: Said) -> Tensor:
        return said.logits.log_softmax(1).amax(1)  # as a logarithm, where ties of 1.0 are far fewer

    def certainties(self, said: Sequence[Said]) -> Tensor:
        return self.scores(said).exp()


class MaxLogit(Rule):
    """The largest logit: what a single head over the classes of all tasks would choose."""

    name: ClassVar[str] = "max-logit"
    explanation: ClassVar[str] = "with the largest of all logits"

    def score(self, said: Said) -> Tensor:
        return said.logits.amax(1)

    def certainties(self, said: Sequence[Said]) -> Tensor:
        """The best class's share of the softmax over the classes of all tasks."""
        shares = torch.cat([each.logits for each in said], 1).softmax(1)
        return torch.stack([each.amax(1) for each in shares.split([each.logits.shape[1] for each in said], dim=1)])


class Energy(Rule):
    """log sum exp of the logits (Liu et al., NeurIPS 2020): minus the free energy."""

    name: ClassVar[str] = "energy"
    explanation: ClassVar[str] = "with the largest log-sum-exp of its logits"

    def score(self, said: Said) -> Tensor:
        return said.logits.logsumexp(1)


class Margin(Rule):
    """How far the best logit is above the second best."""

    name: ClassVar[str] = "margin"
    explanation: ClassVar[str] = "whose best logit is farthest above its second"

    def score(self, said: Said) -> Tensor:
        if said.logits.shape[1] == 1:
            return said.logits[:, 0]
        best = said.logits.topk(2, dim=1).values
        return best[:, 0] - best[:, 1]
