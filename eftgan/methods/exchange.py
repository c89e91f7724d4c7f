"""What trainers and methods hand each other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

Networks = Mapping[str, nn.Module]  # by role


@dataclass(frozen=True)
class Batch:
    """What a penalty may look at: the step's inputs (noise or images), outputs, and labels where there are any."""

    inputs: Tensor
    outputs: Any = None
    labels: Tensor | None = None
    features: Tensor | None = None  # what a classifier's head reads, with graph


@dataclass(frozen=True)
class Moment:
    """Where training stands before a step. It follows from config and step alone, so a resumed run sees the same."""

    step: int  # steps done in this stage
    share: float  # the same as a share of the stage's steps: from 0 to just below 1
    epoch: float | None = None  # passes over the images in this stage; GANs count none
    rate: float | None = None  # a classifier's learning rate in this step


@dataclass(frozen=True)
class Group:
    """Parameters that one setting of the optimizer is for; None: the training's own."""

    parameters: list[nn.Parameter]
    rate: float = 1.0  # learning rate, as a multiple of the network's
    decay: float | None = None  # weight decay
    momentum: float | None = None  # with Adam: its first beta


@dataclass(frozen=True)
class MethodStage:
    """A stretch of a task's training."""

    name: str = "train"
    share: float = 1.0  # of the task's steps; those of all stages add up to 1
    auxiliary: bool = False  # trains on the experiment's unlabelled images, not on the task's; labels mean nothing then
    whole_schedule: bool = False  # the learning rate goes through the task's whole schedule within this stage
    held_out: bool = False  # a tenth of the images is held out, in all stages of the task; `measured` tells the result


def _not_shown(role: str) -> Iterable[Any]:
    raise RuntimeError(f"the training of a {role} does not show this to methods")


@dataclass(frozen=True)
class Probe:
    """A look at the finished task, its images without augmentation and in random order, by a network's role."""

    losses: Callable[[str], Iterable[Tensor]]  # one loss per sample, with graph, in eval mode
    inputs: Callable[[str], Iterable[Tensor]] = _not_shown  # batches of images
    labelled: Callable[[str], Iterable[tuple[Tensor, Tensor]]] = _not_shown  # with labels; eval mode meanwhile
