"""Several rules in one: NAME+NAME; or one that is standardised: z-NAME."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Rule, Said


class Combined(Rule):
    """The sum of standardised scores: each rule's, less its mean over the task's own training images, per deviation.

    So scores of any unit can be added, and networks that are surer than others throughout have no advantage. Scores
    that are comparable between tasks by themselves are added as they are.
    """

    def __init__(self, parts: Sequence[Rule]) -> None:
        self.parts = list(parts)

    @property
    def keeps(self) -> tuple[str, ...]:
        own = [_scale(part) for part in self.parts if not part.comparable]
        return (*(key for part in self.parts for key in part.keeps), *own)

    @property
    def first_keeps(self) -> tuple[str, ...]:
        return tuple(key for part in self.parts for key in part.first_keeps)

    @property
    def hands_on(self) -> tuple[str, ...]:
        return tuple(key for part in self.parts for key in part.hands_on)

    @property
    def asks(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.asks for part in self.parts))

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = {}
        for part in self.parts:
            kept |= part.fit(own, labels)
            if not part.comparable:
                score = part.score(dataclasses.replace(own, kept={**own.kept, **kept})).double()
                kept[_scale(part)] = torch.stack([score.mean(), score.std()]).float()
        return kept

    def class_scores(self, said: Said) -> Tensor:
        """Those of the one part that has any of its own, as a rule none."""
        own = [part for part in self.parts if type(part).class_scores is not Rule.class_scores]
        return own[0].class_scores(said) if own else said.logits

    def score(self, said: Said) -> Tensor:
        return torch.stack([self._standardised(part, said) for part in self.parts]).sum(0)

    def _standardised(self, part: Rule, said: Said) -> Tensor:
        if part.comparable:
            return part.score(said)
        mean, deviation = said.kept[_scale(part)]
        return (part.score(said) - mean) / deviation.clamp_min(torch.finfo(deviation.dtype).tiny)


def _scale(part: Rule) -> str:
    return f"{part.name}/scale"
