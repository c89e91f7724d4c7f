"""Classifier experiments as typed configs, and the functions that build network and tasks from them."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from typing_extensions import Doc

from eftgan.config import Count
from eftgan.data.pixels import Pixels
from eftgan.data.sequences import recorded_path
from eftgan.data.splits import ClassSource, LabelledTask, labelled_tasks, task_names_of
from eftgan.data.streams import stream_seed
from eftgan.errors import UserError
from eftgan.experiment import Adapters, check_inits, refuse_differences
from eftgan.methods import AnyMethod, Eft
from eftgan.methods.heads import CLASSIFIER
from eftgan.models import build_classifier, head_name
from eftgan.runfolder import RunFolder
from eftgan.training.classifier import ClassifierTraining


@dataclass(frozen=True)
class SourceConfig:
    """Labelled images whose classes are dealt out over tasks."""

    name: Annotated[str, Doc("NAME/TASKS, e.g. CIFAR-100/10: its classes in 10 tasks; NAME alone: one task of all")]
    data: Annotated[str, Doc("a folder of train.lmdb and test.lmdb, torchvision:NAME:FOLDER, a tree, or shapes")]
    take: Annotated[Count | None, Doc("only the first so many tasks")] = None


@dataclass(frozen=True)
class NetworkConfig:
    """The classifier."""

    name: Annotated[str, Doc("resnet18, resnet18_third, vgg16_bn, ..., or torchvision:NAME")] = "resnet18"
    weights: Annotated[str | None, Doc("to start from: a file, or a published name such as DEFAULT")] = None
    size: Annotated[Count, Doc("side of the images in pixels")] = 32


@dataclass(frozen=True)
class ClassifierAdapters(Adapters):
    """The same transformations, with the paper's group sizes for ResNet-18."""

    a: Annotated[int, Field(ge=0), Doc("group size of the 3x3 convolution; 0 leaves it out")] = 8


@dataclass(frozen=True)
class ClassifierExperiment:
    """A classifier trained on one set of classes after another."""

    sources: Annotated[list[SourceConfig], Doc("where the classes come from, in order")]
    out: Annotated[str, Doc("the run's folder; an unfinished run there is continued")] = "runs/classifier"
    seed: Annotated[int, Field(ge=0), Doc("fixes weights, order of classes and order of images")] = 0
    shuffle_classes: Annotated[bool, Doc("deal the classes out in an order drawn by the seed")] = True
    limit: Annotated[Count | None, Doc("use that many images of every source's train and test part")] = None
    network: Annotated[NetworkConfig, Doc("the classifier")] = field(default_factory=NetworkConfig)
    pixels: Annotated[Pixels, Doc("normalisation of the images")] = field(default_factory=Pixels)
    adapters: Annotated[ClassifierAdapters, Doc("EFT transformations")] = field(default_factory=ClassifierAdapters)
    method: Annotated[AnyMethod, Doc("the continual-learning method")] = field(default_factory=Eft)
    training: Annotated[ClassifierTraining, Doc("epochs, batches, SGD")] = field(default_factory=ClassifierTraining)
    log_with: Annotated[list[str], Doc("Accelerate's trackers, e.g. [tensorboard]")] = field(default_factory=list)
    start: Annotated[str | None, Doc("a one-task run whose first task is taken over instead of trained")] = None
    title: Annotated[str | None, Doc("what reports call this run (default: the method's name)")] = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise UserError("sources: name at least one set of labelled images")
        if getattr(self.method, "base", "train") == "pretrained" and self.network.weights is None:
            raise UserError("method.base: pretrained needs network.weights, a file or a published name")

    def refuse_start(self, other: "ClassifierExperiment") -> None:
        """Refuse a run whose first task is not the one that this experiment would train."""
        refuse_differences(self, other, ("seed", "shuffle_classes", "limit", "network", "pixels"))
        mine, its = (dataclasses.replace(each.sources[0], take=None) for each in (self, other))
        if mine != its:
            raise UserError(f"start={self.start}: its classes come from {its.name}, {its.data}")
        mine, its = (each.method.banks(CLASSIFIER, each.adapters.config()) for each in (self, other))
        if mine != its:
            raise UserError(
                f"start={self.start}: it was trained by {other.method.name}, whose tasks have other parts than those "
                f"of {self.method.name}, or with other adapters"
            )

    @property
    def class_sources(self) -> list[ClassSource]:
        return [ClassSource(source.name, source.data, source.take) for source in self.sources]

    @property
    def task_names(self) -> list[str]:
        return [name for source in self.class_sources for name in task_names_of(source)]

    @property
    def tasks(self) -> list[str]:
        return self.task_names


def build_network(experiment: ClassifierExperiment, classes: int, *, pretrained: bool = True) -> nn.Module:
    """The classifier with its banks in, weights fixed by the seed, no task yet; `classes`: of the first task."""
    torch.manual_seed(stream_seed(experiment.seed, "weights", CLASSIFIER))
    weights = experiment.network.weights if pretrained else None
    network = build_classifier(experiment.network.name, classes, weights)
    adapters = experiment.adapters.config(heads=[head_name(network)])
    experiment.method.prepare({CLASSIFIER: network}, {CLASSIFIER: adapters})
    return network


def open_classes(experiment: ClassifierExperiment) -> list[LabelledTask]:
    """The tasks; the images that training will read are opened and checked, before anything is trained.

    Those of finished tasks are left alone unless the method trains on them: an earlier set may be gone.
    """
    folder, names, method = RunFolder(Path(experiment.out)), experiment.task_names, experiment.method
    finished, known = folder.finished(names), folder.read_classes()
    needed = {task for last in range(len(finished), len(names)) for task in method.trains_on(names[: last + 1])}
    tasks = labelled_tasks(
        [
            dataclasses.replace(source, data=recorded_path(source.data, folder.data_records().get(source.name)))
            for source in experiment.class_sources
        ],
        size=experiment.network.size,
        seed=experiment.seed if experiment.shuffle_classes else None,
        limit=experiment.limit,
        known={name: classes for name, classes in known.items() if name not in needed},
    )
    check_inits(experiment.method, [(task.name, None) for task in tasks])
    for task in tasks:
        if task.name in needed or task.name not in known:
            check_images(task, experiment.training.batch)
    return tasks


def check_images(task: LabelledTask, batch: int) -> None:
    """Refuse a task with a class without images, or with fewer training images than one step takes."""
    for part, images in (("training", task.train), ("test", task.test)):
        counts = torch.bincount(images.targets, minlength=len(task.classes)).tolist()
        missing = [name for name, count in zip(task.classes, counts, strict=True) if count == 0]
        if missing:
            raise UserError(f"task {task.name}: class {missing[0]!r} has no {part} images")
    if len(task.train) < batch:
        raise UserError(
            f"task {task.name}: {len(task.train)} training images are fewer than one step takes ({batch}); "
            "lower training.batch"
        )
