"""A rule of task inference: how much each task believes that an image is its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Said:
    """What one task says of N images, and what it kept of its own training images."""

    logits: Tensor  # (N, classes of the task)
    features: Tensor | None = None  # (N, F), what its head reads; for rules that ask for them
    common: Tensor | None = None  # (N, G), features in the first task's network: one space for all tasks
    kept: Mapping[str, Tensor] = field(default_factory=dict)  # by names such as "density/means"; what serves all, too
    statistics: Tensor | None = None  # (N, M), of the first task's maps: means and deviations, mirrored images as well
    textures: Tensor | None = None  # the same, and the correlations of the largest map's channels


class Rule:
    """Scores images task by task; the task with the largest score is believed.

    What a rule needs to know of a task is fitted once, on the task's own training images, and kept with the task: no
    images. A rule never sees the images that it will be measured on.
    """

    name: ClassVar[str] = ""
    explanation: ClassVar[str] = ""  # completes "believes the task ..."
    comparable: ClassVar[bool] = False  # scores of all tasks are in one unit, which standardising would take away

    @property
    def asks(self) -> frozenset[str]:
        """What it looks at beside logits: "features", "common", "statistics", "textures"."""
        return frozenset()

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of the tensors that every task has to keep for it."""
        return ()

    @property
    def first_keeps(self) -> tuple[str, ...]:
        """Names of those that the first task keeps beside, for all tasks."""
        return ()

    @property
    def hands_on(self) -> tuple[str, ...]:
        """Names of those that every task takes over from the one before, brings up to date and keeps for the next.

        Only the newest are of use: they stand for all tasks so far.
        """
        return ()

    def kept_by(self, place: int) -> tuple[str, ...]:
        """Names of the tensors in a task's file, by its place in the sequence (from 0)."""
        return (*self.keeps, *self.hands_on, *(() if place else self.first_keeps))

    def added_by(self, place: int) -> tuple[str, ...]:
        """Names of those that a run needs more for this task: what is handed on comes in the place of the last."""
        return self.keeps if place else self.kept_by(0)

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        """What a task keeps: computed from what it says of its own training images, and their labels (N,).

        own.kept: what the first task keeps for all and what the last one hands on; nothing where this is the first.
        """
        return {}

    def score(self, said: Said) -> Tensor:
        """How much the task believes that each image is its own (N,); only comparisons between tasks mean anything."""
        raise NotImplementedError

    def class_scores(self, said: Said) -> Tensor:
        """By which a believed task names the class of each image (N, classes): its logits, as a rule."""
        return said.logits

    def scores(self, said: Sequence[Said]) -> Tensor:
        """Scores of all tasks (tasks, N)."""
        return torch.stack([self.score(each) for each in said])

    def certainties(self, said: Sequence[Said]) -> Tensor:
        """For people: how sure each task is (tasks, N), from 0 to 1; the largest is that of the largest score."""
        return self.scores(said).softmax(0)
