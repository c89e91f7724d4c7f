"""A classifier experiment as a typed config, and its tasks with their images."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from typing_extensions import Doc

from eftgan.classifier.kept import keeps_own_files
from eftgan.classifier.selection import Schedule, SeenImages
from eftgan.config import Choice, Count, Local, Share
from eftgan.data.labelled import open_labelled
from eftgan.data.pixels import Pixels
from eftgan.data.sequences import built_in, data_record, recorded_path
from eftgan.data.splits import ClassSource, LabelledTask, labelled_tasks, task_names_of, without_held_out
from eftgan.errors import UserError
from eftgan.evaluation.rules import AUTO, RULES, rule_named
from eftgan.methods import METHODS, Eft, Method
from eftgan.names import CLASSIFIER
from eftgan.runfolder import RunFolder
from eftgan.training.experiment import Adapters, Experiment, Training, check_inits, refuse_differences

AUXILIARY = "auxiliary images"  # what a run's record of its data calls them


@dataclass(frozen=True)
class SourceConfig:
    """Labelled images whose classes are dealt out over tasks."""

    name: Annotated[str, Doc("NAME/TASKS, e.g. CIFAR-100/10: its classes in 10 tasks; NAME alone: one task of all")]
    data: Annotated[
        str,
        Local(portable=r"shapes:\w+"),
        Doc(
            "a folder, .zip, .tar or .tar.gz of CLASS/IMAGE, or of train/CLASS/IMAGE and test/CLASS/IMAGE (or val/); "
            "a folder of train.lmdb and test.lmdb (python -m data_prep), torchvision:NAME:FOLDER, or shapes:CLASSES"
        ),
    ]
    take: Annotated[Count | None, Doc("only the first so many tasks")] = None
    test_share: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        Doc("the share of every class to test on, of data without test/ (null: 0.2)"),
    ] = None


@dataclass(frozen=True)
class AuxiliaryConfig:
    """Images for methods that learn from unlabelled ones; their classes should not be those of the tasks."""

    data: Annotated[
        str,
        Local(portable=r"shapes:\w+"),
        Doc("labelled images as for sources; the training part is used, without its labels"),
    ]
    limit: Annotated[Count | None, Doc("use that many images, evenly over their classes")] = None


@dataclass(frozen=True)
class NetworkConfig:
    """The classifier."""

    name: Annotated[str, Doc("resnet18, resnet18_third, vgg16_bn, ..., or torchvision:NAME")] = "resnet18"
    weights: Annotated[
        str | None, Local(portable="[A-Z0-9_]+"), Doc("to start from: a file, or a published name such as DEFAULT")
    ] = None
    size: Annotated[Count, Doc("side of the images in pixels")] = 32


@dataclass(frozen=True)
class ClassifierAdapters(Adapters):
    """The same transformations, with the paper's group sizes for ResNet-18."""

    a: Annotated[int, Field(ge=0), Doc("group size of the 3x3 convolution; 0 leaves it out")] = 8


@dataclass(frozen=True, kw_only=True)
class ClassifierTraining(Training):
    """How every task is trained."""

    batch: Annotated[Count, Doc("images per step and process")] = 128
    first: Annotated[Schedule, Doc("schedule of the first task")] = field(default_factory=Schedule)
    later: Annotated[Schedule | None, Doc("schedule of the later tasks; null: as the first")] = None
    optimizer: Annotated[Literal["sgd", "adam"], Doc("sgd: with momentum; adam: for scores of masks, say")] = "sgd"
    momentum: Annotated[Share, Doc("of SGD; Adam's first beta")] = 0.9
    fused_adam: Annotated[
        bool, Doc("with optimizer: adam; one pass over the weights a step: the same up to rounding, in less time")
    ] = True
    selection: Annotated[
        Literal["last", "val", "test"],
        Doc("last: the last epoch; val: the best on 10 % held out, then all images for as long; test: best on test"),
    ] = "last"
    augment: Annotated[bool, Doc("random crops of the padded image and flips")] = True
    padding: Annotated[int, Field(ge=0), Doc("zeros around an image before it is cropped")] = 4
    rotation: Annotated[
        float, Field(ge=0, le=180), Doc("with augment: turn each image by up to so many degrees either way; 0: none")
    ] = 0.0


def _for_classifiers(method: type) -> bool:
    return issubclass(method, Method) and method.suits("classifier")


@dataclass(frozen=True, kw_only=True)
class ClassifierExperiment(Experiment):
    """A classifier trained on one set of classes after another."""

    kind: ClassVar[str] = "classifier"
    noun: ClassVar[str] = "classifier"

    sources: Annotated[list[SourceConfig], Doc("where the classes come from, in order")]
    out: Annotated[str, Local(), Doc("the run's folder; an unfinished run there is continued")] = "runs/classifier"
    shuffle_classes: Annotated[bool, Doc("deal the classes out in an order drawn by the seed")] = True
    limit: Annotated[Count | None, Doc("use that many images of every source's train and test part")] = None
    network: Annotated[NetworkConfig, Doc("the classifier")] = field(default_factory=NetworkConfig)
    pixels: Annotated[Pixels, Doc("normalisation of the images")] = field(default_factory=Pixels)
    adapters: Annotated[ClassifierAdapters, Doc("the task-specific transformations")] = field(
        default_factory=ClassifierAdapters
    )
    method: Annotated[Method, Choice(METHODS, "eft", _for_classifiers), Doc("the continual-learning method")] = field(
        default_factory=Eft
    )
    inference: Annotated[
        str,
        Doc(
            f"how the task of an image is inferred: {AUTO} (entropy, or max-logit where tasks differ in their heads "
            f"alone), {', '.join(RULES)}, z-NAME (standardised), or a sum such as entropy+lda-joint"
        ),
    ] = AUTO
    auxiliary: Annotated[AuxiliaryConfig | None, Doc("unlabelled images, for methods that need some: dmc")] = None
    training: Annotated[ClassifierTraining, Doc("epochs, batches, SGD")] = field(default_factory=ClassifierTraining)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources:
            raise UserError("sources: name at least one set of labelled images")
        if self.method.auxiliary and self.auxiliary is None:
            raise UserError(
                f"method.name: {self.method.name} needs unlabelled images; name some by auxiliary.data=..., in one of "
                "the forms of sources.0.data"
            )
        if self.auxiliary is not None and not self.method.auxiliary:
            raise UserError(f"auxiliary: {self.method.name} makes no use of unlabelled images; leave it out")
        if rule_named(self.inference).keeps and not keeps_own_files(self.method):
            raise UserError(
                f"inference: {self.inference} has every task keep something of its own images, which no longer holds "
                f"when {self.method.name} changes the weights that tasks share; choose a rule that keeps nothing"
            )
        if self.method.base == "pretrained" and self.network.weights is None:
            raise UserError("method.base: pretrained needs network.weights, a file or a published name")

    def check_start(self, other: "ClassifierExperiment") -> None:
        refuse_differences(self, other, ("seed", "shuffle_classes", "limit", "network", "pixels", "held_out"))
        mine, its = (dataclasses.replace(each.sources[0], take=None) for each in (self, other))
        if mine != its:
            raise UserError(f"start={self.start}: its classes come from {its.name}, {its.data}")
        banks = [each.method.banks(CLASSIFIER, each.adapters.config()) for each in (self, other)]
        if banks[0] != banks[1] and self.method.first_transforms != "neutral":
            raise UserError(
                f"start={self.start}: it was trained by {other.method.name}, whose tasks have other parts than those "
                f"of {self.method.name}, or with other adapters"
            )

    @property
    def class_sources(self) -> list[ClassSource]:
        return [ClassSource(**dataclasses.asdict(source)) for source in self.sources]

    @property
    def task_names(self) -> list[str]:
        return [name for source in self.class_sources for name in task_names_of(source)]

    @property
    def sequence(self) -> list[SourceConfig]:
        return self.sources


def open_classes(experiment: ClassifierExperiment) -> list[LabelledTask]:
    """The tasks; the images that training will read are opened and checked, before anything is trained.

    Those of finished tasks are left alone unless the method trains on them: an earlier set may be gone.
    """
    folder, names, method = RunFolder(Path(experiment.out)), experiment.task_names, experiment.method
    finished, known = folder.finished(names), folder.read_classes()
    needed = {task for last in range(len(finished), len(names)) for task in method.trains_on(names[: last + 1])}
    records = folder.data_records()
    tasks = labelled_tasks(
        [
            dataclasses.replace(
                source,
                data=recorded_path(source.data, records.get(source.name)),
                digest=records.get(source.name, {}).get("digest"),
            )
            for source in experiment.class_sources
        ],
        size=experiment.network.size,
        seed=experiment.seed if experiment.shuffle_classes else None,
        limit=experiment.limit,
        known={name: classes for name, classes in known.items() if name not in needed},
    )
    if experiment.held_out:
        tasks = [without_held_out(task, experiment.held_out) for task in tasks]
    check_inits(experiment)
    for task in tasks:
        if task.name in needed or task.name not in known:
            check_images(task, experiment.training.batch)
    return tasks


def open_auxiliary(experiment: ClassifierExperiment) -> SeenImages | None:
    """The unlabelled images of an experiment that names some."""
    wanted = experiment.auxiliary
    if wanted is None:
        return None
    data = recorded_path(wanted.data, RunFolder(Path(experiment.out)).data_records().get(AUXILIARY))
    train, _, classes = open_labelled(data, size=experiment.network.size, limit=wanted.limit)
    return SeenImages([train], [len(classes)])


def auxiliary_record(experiment: ClassifierExperiment) -> dict[str, str] | None:
    """What a run remembers of its unlabelled images; others than it was started with are refused."""
    wanted = experiment.auxiliary
    if wanted is None:
        return None
    before = RunFolder(Path(experiment.out)).data_records().get(AUXILIARY, {})
    data = recorded_path(wanted.data, before)
    digest = None if built_in(data) else open_labelled(data, size=experiment.network.size, limit=1)[0].digest
    known, named = before.get("digest"), built_in(before.get("typed", data))
    if known not in (None, digest) or named != built_in(data):
        raise UserError(f"auxiliary.data: {data} holds other images than this run was started with; put those back")
    return data_record(wanted.data, digest)


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
