"""The interface of a continual-learning method; the base class is fine-tuning.

One object serves the GAN trainer and the classifier trainer. Networks come as a mapping from role ("generator",
"discriminator64", "classifier") to network. Per task the trainer calls grow -> begin_stage -> trainable, groups,
writable -> (begin_step, objective, penalty, after_step) at every step -> measured, end_stage -> end_task, and then
checks that `frozen` has not changed and writes `snapshot`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import (
    PARTS,
    AdapterConfig,
    add_task,
    insert_adapters,
    load_task,
    shared_state,
    task_names,
    train_only,
)
from eftgan.adapters.bank import Part
from eftgan.config import Positive
from eftgan.methods.exchange import Batch, Group, MethodStage, Moment, Networks, Probe
from eftgan.names import CLASSIFIER


@dataclass
class Method:
    """Fine-tuning: the whole network goes on training, nothing protects earlier tasks."""

    title: ClassVar[str] = "Fine-tuning"  # what reports call it
    only_for: ClassVar[str | None] = None  # the one kind of experiment that the idea fits; None: any
    owns: ClassVar[frozenset[Part]] = frozenset()  # parts of which every task has its own
    own_parts_change: ClassVar[bool] = False  # those of earlier tasks go on training, and their size with them
    fresh: ClassVar[bool] = False  # every task starts a network of its own, and trains as long as a first task
    auxiliary: ClassVar[bool] = False  # some stage trains on unlabelled images, which the experiment must name
    rewrites: ClassVar[bool] = False  # a finished task holds other weights than were trained: no other run starts there
    chained: ClassVar[bool] = False  # tasks add to theta, so that their files only make sense read in order

    name: str = "method"
    later_rate: Annotated[
        Positive,
        Doc("tasks after the first (base: pretrained: all): their learning rate, as a multiple of the training's"),
    ] = 1.0

    # Where a method lets people choose one of these four, a field takes the place of the property.

    @property
    def base(self) -> str:
        """train, or pretrained: theta is frozen from the first task on."""
        return "train"

    @property
    def init(self) -> str:
        """Where a later task's own parts start."""
        return "previous"

    @property
    def first_init(self) -> str:
        """Where the first task's own parts start."""
        return "identity"

    @property
    def first_transforms(self) -> str:
        """train, or neutral: those of the first task stay untrained, and a first task fits every kind of them."""
        return "train"

    @classmethod
    def suits(cls, kind: str) -> bool:
        """Whether experiments of this kind can use the method."""
        return cls.only_for in (None, kind)

    @property
    def own_first_task(self) -> dict[str, str]:
        """Settings by which the first task becomes another one than fine-tuning's."""
        return {}

    @property
    def follows_training(self) -> bool:
        """Whether what it remembers of a task is known only while the task trains, not from the finished one."""
        return False

    @property
    def first_rates(self) -> dict[str, float]:
        """Multiples of the learning rate that hold in the first task: with a pretrained base it is one like all."""
        return {} if self.base == "train" else {"later_rate": self.later_rate}

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        """Put the banks in. GAN methods get the same ones where they can: their first task then is one run."""
        for role, network in networks.items():
            insert_adapters(network, self.banks(role, adapters[role]))

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        """A classifier without task parameters needs no more than a head per task."""
        return dataclasses.replace(config, parts=("heads",)) if role == CLASSIFIER else config

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        """Add the task; `head_size` is given where its labels are its own."""
        for role, network in networks.items():
            own = set(self.owned_by_tasks(role)) | ({"heads"} if head_size else set())
            start = (init or self.init) if task_names(network) else self.first_init
            start = start if own else "previous"  # all is shared, and an earlier task may be gone from the network
            add_task(network, task, start, share=set(PARTS) - own, head_size=head_size)

    def owned_by_tasks(self, role: str) -> Iterable[Part]:
        """Parts of this network of which every task has its own."""
        return self.owns

    def trains_shared(self, role: str, first: bool) -> bool:
        """Whether theta of this network trains in the task."""
        return True

    def rate(self, role: str, first: bool) -> float:
        """The learning rate of this network's parameters in the task, as a multiple of the training's own."""
        return 1.0 if first and self.base == "train" else self.later_rate

    def trains_on(self, seen: list[str]) -> list[str]:
        """Tasks whose images (and a classifier's heads) training uses while the last of the seen tasks is learned."""
        return seen[-1:]

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        """Freeze what the task must not touch; the rest is what the optimizers see."""
        parameters = {}
        for role, network in networks.items():
            first = task_names(network)[0] == task
            parameters[role] = train_only(network, task, shared=self.trains_shared(role, first))
        return parameters

    def stages(self, first: bool) -> list[MethodStage]:
        """The stretches of a task's training, each with new optimizers. More than one is for classifiers only."""
        return [MethodStage()]

    def begin_stage(self, networks: Networks, task: str, stage: str) -> None:
        """Called once before a stage's first step, however often training stops and goes on."""

    def measured(self, stage: str, accuracy: float) -> None:
        """Called before `end_stage` where images are held out: the accuracy on these."""

    def end_stage(self, networks: Networks, task: str, stage: str) -> None:
        """Called once after a stage's last step."""

    def groups(self, role: str, parameters: list[nn.Parameter]) -> list[Group]:
        """How the optimizer of this network divides the trainable parameters: each stands in one group."""
        return [Group(parameters)]

    def writable(self, role: str, network: nn.Module, task: str) -> Mapping[str, Tensor] | None:
        """By parameter, a bool tensor: True where the task may write. What is left out it may write everywhere.

        The trainer puts the other entries back after every step. The answer must depend on earlier tasks alone.
        """
        return None

    def begin_step(self, role: str, networks: Networks, moment: Moment) -> None:
        """Called before the forward of every step, for each network; what it sets must follow from the moment."""

    @property
    def outputs_per_class(self) -> int:
        """Outputs of a classifier's head for each class: 1, or one for each way in which the task shows its images."""
        return 1

    def views(self, images: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What a classifier's step trains on: the augmented images and labels, or what is made of them."""
        return images, labels

    def objective(self, stage: str, batch: Batch, usual: Callable[[], Tensor]) -> Tensor:
        """The loss of a classifier's step, to which the penalty is added; `usual` computes cross-entropy."""
        return usual()

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        """Added to the loss of the network that is being stepped."""
        return 0.0

    def after_step(self, role: str, networks: Networks) -> None:
        """Called when this network's optimizer has stepped."""

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        """Remember what protects the finished task."""

    def as_trained(self, networks: Networks, state: Mapping[str, Tensor]) -> None:
        """Undo what `end_task` did to a finished first task that another run begins with; state: what it left then."""

    def figures(self) -> dict[str, float]:
        """Numbers about the task in training that are worth logging."""
        return {}

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        """Tensors that training `task` must leave bit-identical."""
        return {}

    @property
    def files_suffice(self) -> bool:
        """Whether shared weights and task files are all that a further task needs to start from."""
        return False

    @property
    def lets_go(self) -> bool:
        """Whether finished tasks may leave the networks while others train: files hold them, and no step asks for them.

        The first and the last stay, since a further task may start from them.
        """
        return False

    def theta(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        """The shared weights as a finished task left them: what it computes with, and what the next file is for."""
        return shared_state(network)

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor] | None:
        """tau_t by role, for a small task file; None where the whole generator must be kept per task."""
        return None

    def restore(self, networks: Networks, task: str, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `snapshot` gave, into networks that have the shared weights and all tasks before this one."""
        for role, network in networks.items():
            own = {key.removeprefix(f"{role}/"): t for key, t in tensors.items() if key.startswith(f"{role}/")}
            load_task(network, task, own)

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors that the method needs to go on after a stop."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        """Take back what `state_dict` gave; the networks have their tasks again."""


def seen_tasks(networks: Networks) -> list[str]:
    """Tasks of the networks (all have the same)."""
    return task_names(next(iter(networks.values())))
