"""Several rules in one: NAME+NAME."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Rule, Said


class Combined(Rule):
    """The sum of standardised scores: each rule's, less its mean over the task's own training images, per deviation.

    So scores of any unit can be added, and networks that are surer than others throughout have no advantage. Of one
    rule alone, it is that rule standardised.
    """

    def __init__(self, parts: Sequence[Rule]) -> None:
        self.parts = list(parts)

    @property
    def keeps(self) -> tuple[str, ...]:
        own = [f"{part.name}/scale" for part in self.parts]
        return (*(key for part in self.parts for key in part.keeps), *own)

    @property
    def asks(self) -> frozenset[str]:
        return frozenset().union(*(part.asks for part in self.parts))

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        kept: dict[str, Tensor] = {}
        for part in self.parts:
            kept |= part.fit(own, labels)
            score = part.score(dataclasses.replace(own, kept=kept)).double()
            kept[f"{part.name}/scale"] = torch.stack([score.mean(), score.std()]).float()
        return kept

    def score(self, said: Said) -> Tensor:
        scores = []
        for part in self.parts:
            mean, deviation = said.kept[f"{part.name}/scale"]
            scores.append((part.score(said) - mean) / deviation.clamp_min(torch.finfo(deviation.dtype).tiny))
        return torch.stack(scores).sum(0)
