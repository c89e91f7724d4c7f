"""How long a classifier trains, on which images, and which epoch its weights are taken from."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from typing_extensions import Doc

from eftgan.config import NonNegative, Positive
from eftgan.data.labelled import LabelledImages
from eftgan.data.sampler import StepBatches
from eftgan.methods import MethodStage, Moment

HELD_OUT = 0.1  # share of the training images that selection val looks at


@dataclass(frozen=True)
class Schedule:
    """Epochs of a task, and the learning rate over them."""

    epochs: Annotated[Positive, Doc("passes over the task's images")] = 200
    learning_rate: Annotated[Positive, Doc("of SGD or Adam, at the start")] = 0.01
    milestones: Annotated[list[Positive], Doc("epochs at which the learning rate is lowered")] = field(
        default_factory=list
    )
    factor: Annotated[Positive, Doc("what it is multiplied by there")] = 0.1
    weight_decay: Annotated[NonNegative, Doc("of SGD or Adam")] = 5e-4

    def shortened(self, share: float) -> "Schedule":
        """So much of it, in whole epochs and at least one; the learning rate falls at the same parts of the way."""
        epochs = max(1, round(self.epochs * share))
        milestones = [milestone * epochs / self.epochs for milestone in self.milestones]
        return dataclasses.replace(self, epochs=epochs, milestones=milestones)

    def rate_at(self, epoch: float) -> float:
        """The learning rate after so many epochs: depends on nothing else, so going on changes nothing."""
        return self.learning_rate * self.factor ** sum(epoch >= milestone for milestone in self.milestones)


class SeenImages(Dataset):
    """Training images of one task, or of several with joined labels; an item is a whole batch, by its indices."""

    def __init__(self, parts: Sequence[LabelledImages], classes: Sequence[int], kept: Tensor | None = None) -> None:
        self.parts = list(parts)
        self.starts = [sum(len(part) for part in parts[:i]) for i in range(len(parts))]
        self.offsets = [sum(classes[:i]) for i in range(len(parts))]
        self.classes = list(classes)
        self.kept = torch.arange(sum(len(part) for part in parts)) if kept is None else kept

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """uint8 (B, 3, S, S) and labels (B,); images of one part stand together."""
        chosen = self.kept[torch.as_tensor(indices)]
        found = []
        for part, start, offset in zip(self.parts, self.starts, self.offsets, strict=True):
            own = chosen[(chosen >= start) & (chosen < start + len(part))] - start
            if len(own):
                images, labels = part.fetch(own)
                found.append((images, labels + offset))
        return torch.cat([images for images, _ in found]), torch.cat([labels for _, labels in found])

    def divided(self, share: float, generator: torch.Generator) -> tuple["SeenImages", "SeenImages"]:
        """The images without a random share of them, and that share."""
        order = self.kept[torch.randperm(len(self), generator=generator)]
        count = max(1, round(share * len(self)))
        rest, held = order[count:].sort().values, order[:count].sort().values
        return SeenImages(self.parts, self.classes, rest), SeenImages(self.parts, self.classes, held)


@dataclass(frozen=True)
class Stage:
    """A stretch of a task's training: images, heads, how many epochs.

    `first` is the step within the task from which epochs, and so the learning rate, are counted. A method with stages
    of its own divides the steps from there on: a stage then is one `part` of them.
    """

    task: str
    heads: list[str]  # tasks whose joined outputs the labels of the images count through
    images: "SeenImages"
    epochs: float
    schedule: Schedule
    together: int  # images per step, over all processes
    first: int = 0
    watch: "SeenImages | None" = None  # images whose accuracy chooses the epoch
    name: str = MethodStage.name  # as the method calls it
    part: tuple[float, float] = (0.0, 1.0)
    read: "SeenImages | None" = None  # what is trained on in the place of the task's images; epochs count through these
    whole_schedule: bool = False  # within the stage alone

    def divided(self, stages: Sequence[MethodStage], auxiliary: "SeenImages | None" = None) -> list["Stage"]:
        """One after the other, the stages that a method makes of this one."""
        ends = list(itertools.accumulate(stage.share for stage in stages))
        if not all(stage.share > 0 for stage in stages) or not math.isclose(ends[-1], 1.0):
            raise ValueError(f"the shares of stages must add up to 1: {stages}")
        parts = itertools.pairwise([0.0, *ends[:-1], 1.0])
        return [
            dataclasses.replace(
                self,
                name=stage.name,
                part=part,
                read=auxiliary if stage.auxiliary else None,
                whole_schedule=stage.whole_schedule,
            )
            for stage, part in zip(stages, parts, strict=True)
        ]

    def _at(self, share: float) -> int:
        return self.first + round(share * max(1, math.ceil(self.epochs * len(self.images) / self.together)))

    @property
    def begin(self) -> int:
        """The step within the task at which the stage begins."""
        return self._at(self.part[0])

    @property
    def last(self) -> int:
        """The step within the task at which the stage ends."""
        return self._at(self.part[1])

    def moment(self, step: int) -> Moment:
        """What a method may know of a step of the task, within this stage."""
        epoch = self.epoch(step) - self.epoch(self.begin)
        return Moment(step - self.begin, self._share(step), epoch, self.rate(step))

    def batches(
        self, step: int, batch: int, *, seed: int, rank: int, world: int, workers: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels from a step of the task to the stage's last: the same ones however often it stopped."""
        images = self.images if self.read is None else self.read
        sampler = StepBatches(
            len(images), batch, seed=seed, task=self.task, rank=rank, world=world,
            start_step=step - self.first, steps=self.last - step,
        )  # fmt: skip
        return iter(DataLoader(images, sampler=sampler, batch_size=None, num_workers=workers))

    def epoch(self, step: int) -> float:
        """Passes over the images after so many steps of the task."""
        return (step - self.first) * self.together / len(self.images)

    def rate(self, step: int) -> float:
        """The learning rate of a step of the task."""
        return self.schedule.rate_at(self.epochs * self._share(step) if self.whole_schedule else self.epoch(step))

    def _share(self, step: int) -> float:
        return (step - self.begin) / (self.last - self.begin)

    def ends_epoch(self, step: int) -> bool:
        """Whether this step, just made, completed a pass."""
        return step == self.last or int(self.epoch(step)) > int(self.epoch(step - 1))


@dataclass
class Best:
    """The best epoch so far, and the tensors to go back to: its own, or those that the task began with."""

    epoch: float = 0.0
    accuracy: float = -1.0
    kept: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        self.kept = {key: tensor.detach().clone() for key, tensor in tensors.items()}

    def better(self, epoch: float, accuracy: float) -> bool:
        """Note an epoch; whether it is the best."""
        if accuracy <= self.accuracy:
            return False
        self.epoch, self.accuracy = epoch, accuracy
        return True

    def state_dict(self) -> dict[str, Tensor]:
        facts = torch.tensor([self.epoch, self.accuracy], dtype=torch.float64)
        return {"facts": facts, **{f"kept/{key}": tensor for key, tensor in self.kept.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.epoch, self.accuracy = state["facts"].tolist()
        self.kept = {key.removeprefix("kept/"): tensor for key, tensor in state.items() if key.startswith("kept/")}
