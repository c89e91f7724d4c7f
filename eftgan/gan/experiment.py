"""A GAN experiment as a typed config, and its tasks with their images."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import Doc

from eftgan.config import Choice, Count, Local, NonNegative, Positive, Share
from eftgan.data.collection import ImageCollection, Selection, held_out
from eftgan.data.sequences import check_sequence, open_images, recorded_path
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.methods import METHODS, Eft, Method
from eftgan.models.gans import GANS, GanFamily, StackGan
from eftgan.runfolder import RunFolder
from eftgan.training.experiment import Experiment, Training, check_inits, refuse_differences


@dataclass(frozen=True)
class TaskConfig:
    """One collection of the sequence."""

    name: Annotated[str, Doc("letters, digits, _ and -")]
    data: Annotated[
        str,
        Local(portable=r"shapes:\w+"),
        Doc("a folder, .zip, .tar or .tar.gz of images, an LMDB, or shapes:<kind> for built-in ones"),
    ]
    limit: Annotated[Count | None, Doc("use that many images")] = None
    steps: Annotated[Count | None, Doc("in place of training.steps")] = None
    epochs: Annotated[Positive | None, Doc("in place of training.epochs")] = None
    init: Annotated[str | None, Doc("in place of method.init")] = None


@dataclass(frozen=True)
class Length:
    """How long a task trains."""

    steps: Annotated[Count | None, Doc("optimizer steps")] = None
    epochs: Annotated[Positive | None, Doc("passes over its images, where steps is not given")] = None


@dataclass(frozen=True, kw_only=True)
class GanTraining(Training):
    """How every task is trained."""

    batch: Annotated[Count, Doc("images per step and process")] = 24
    steps: Annotated[Count | None, Doc("optimizer steps per task")] = None
    epochs: Annotated[Positive | None, Doc("passes over a task's images, where steps is not given")] = None
    first: Annotated[Length, Doc("the first task, in place of steps and epochs")] = field(default_factory=Length)
    until: Annotated[
        Literal["steps", "plateau"],
        Doc("plateau: a task ends when what evaluation.every_steps measures is flat; steps and epochs are its limit"),
    ] = "steps"
    patience: Annotated[Count, Doc("until=plateau: measurements in a row without a gain of 5 % that make it flat")] = 5
    selection: Annotated[
        Literal["last", "best"],
        Doc("last: a task ends with its last step's weights; best: with those that evaluation.every_steps found best"),
    ] = "last"
    learning_rate: Annotated[Positive, Doc("of Adam, for generator and discriminators")] = 2e-4
    decay: Annotated[Share, Doc("the last part of a task's steps, in which the learning rate falls to 0; 0: none")] = (
        0.0
    )
    betas: Annotated[tuple[Share, Share], Doc("of Adam")] = (0.5, 0.999)
    ema_decay: Annotated[Share, Doc("of the averaged generator that samples come from")] = 0.999
    recalibration: Annotated[
        int, Field(ge=0), Doc("batches that measure its BatchNorm statistics when a task ends; 0: training's own serve")
    ] = 0
    accumulation: Annotated[Count, Doc("batches per optimizer step")] = 1
    sync_batchnorm: Annotated[bool, Doc("BatchNorm over the batches of all processes (GPUs only)")] = False
    diffaugment: Annotated[tuple[Literal["color", "translation", "cutout"], ...], Doc("augmentations; [] is off")] = ()
    r1: Annotated[NonNegative, Doc("strength of the R1 penalty on the discriminators' gradients; 0: none")] = 0.0
    fast_upsampling: Annotated[
        bool,
        Doc("upsampling and the convolution behind it as one: the same up to rounding, in half the time"),
    ] = True
    fast_codes: Annotated[
        bool, Doc("noise beside a map is convolved once, not at every pixel: the same up to rounding")
    ] = True
    fused_adam: Annotated[
        bool, Doc("one pass over the weights a step: the same up to rounding, in a ninth of the time")
    ] = True
    snapshot_every_steps: Annotated[int, Field(ge=0), Doc("how often sample grids are drawn; 0: at the end only")] = 0


@dataclass(frozen=True)
class Evaluation:
    """What is measured after every task and within it; `eftgan evaluate` does more at any time."""

    features: Annotated[
        Literal["none", "random", "inception"],
        Doc("inception: FID; random: FD-random, a quick distance over a fixed random network; none: nothing"),
    ] = "random"
    samples: Annotated[int, Field(ge=2, le=1_000_000), Doc("images generated for each measurement")] = 1000
    every_steps: Annotated[
        Count | None, Doc("how often a task is measured while it trains, and at its end; null: only after it")
    ] = None
    every_samples: Annotated[int, Field(ge=2, le=1_000_000), Doc("images generated for each of these")] = 500
    every_metric: Annotated[Literal["kid", "fid"], Doc("what is measured then, over the features")] = "kid"


def _for_gans(method: type) -> bool:
    return issubclass(method, Method) and method.suits("gan")


@dataclass(frozen=True, kw_only=True)
class GanExperiment(Experiment):
    """A generator trained on one collection after another."""

    kind: ClassVar[str] = "gan"
    noun: ClassVar[str] = "image generator"

    tasks: Annotated[list[TaskConfig], Doc("the sequence, in order")]
    out: Annotated[str, Local(), Doc("the run's folder; an unfinished run there is continued")] = "runs/gan"
    network: Annotated[GanFamily, Choice(GANS, "stackgan"), Doc("the family and its shape")] = field(
        default_factory=StackGan
    )
    base_weights: Annotated[
        str | dict[str, str] | None,
        Local(),
        Doc("method.base=pretrained: a run's folder, a checkpoint of the generator, or one per role"),
    ] = None
    method: Annotated[Method, Choice(METHODS, "eft", _for_gans), Doc("the continual-learning method")] = field(
        default_factory=Eft
    )
    training: Annotated[GanTraining, Doc("steps, batches, optimizers")] = field(default_factory=GanTraining)
    evaluation: Annotated[Evaluation, Doc("after every task")] = field(default_factory=Evaluation)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sequence(self.task_names)
        for task in self.tasks:
            if not any((length.steps, length.epochs) != (None, None) for length in self.lengths(task)):
                raise UserError(f"task {task.name}: how long? Set training.steps or training.epochs")
        self._check_watching()
        if (self.method.base == "pretrained") != (self.base_weights is not None):
            raise UserError(
                "method.base: pretrained and base_weights belong together: the one freezes the weights from the first "
                "task on, the other says where they come from (start=RUN takes over a trained first task instead)"
            )
        check_inits(self)

    def _check_watching(self) -> None:
        """Refuse settings that need measurements within a task where there are none, or that they contradict."""
        training, evaluation, method = self.training, self.evaluation, self.method
        if evaluation.every_steps and evaluation.features == "none":
            raise UserError("evaluation.every_steps: nothing can be measured with evaluation.features=none; set random")
        for setting in self._steered_by:
            if not evaluation.every_steps:
                raise UserError(f"{setting} needs measurements to go by: set evaluation.every_steps=500, say")
            if type(method).begin_step is not Method.begin_step:
                raise UserError(f"{setting}: {method.name} divides a task's steps into parts, all of which it needs")
        if training.until == "plateau" and training.decay:
            raise UserError(
                "training.until=plateau: training.decay counts back from an end that is not known; leave it out"
            )

    @property
    def _steered_by(self) -> list[str]:
        """The settings by which measurements within a task decide what it learns."""
        chosen = {"training.selection": self.training.selection, "training.until": self.training.until}
        return [f"{key}={value}" for key, value in chosen.items() if value in ("best", "plateau")]

    def is_free(self, key: str) -> bool:
        return super().is_free(key) and not (self._steered_by and key.startswith("evaluation."))

    def lengths(self, task: TaskConfig) -> list[TaskConfig | Length | GanTraining]:
        """What may say how long a task trains; the first that does counts."""
        trains_first = task == self.tasks[0] or self.method.fresh
        return [task, *([self.training.first] if trains_first else []), self.training]

    def check_given(self, words: Sequence[str]) -> None:
        """A config may have lengths that no task uses; whoever types one means it."""
        given = {word.partition("=")[0].strip() for word in words}
        keys = [self._length_key(index) for index in range(len(self.tasks))]
        places: list[tuple[str, Length | GanTraining, list[str]]] = [
            ("training", self.training, keys),
            ("training.first", self.training.first, keys[:1]),
        ]
        for place, length, counting in places:
            for key, value in ((f"{place}.steps", length.steps), (f"{place}.epochs", length.epochs)):
                if value is not None and key in given and key not in counting:
                    others = list(dict.fromkeys(counting))
                    raise UserError(
                        f"{key}={value:g} has no effect where the config sets {_some(others)}: for {key} to count, add "
                        f"{_some([f'{other}=null' for other in others])}"
                    )

    def _length_key(self, index: int) -> str:
        """The key that says how long a task trains, in a sequence."""
        first = ("training.first", self.training.first)
        places: list[tuple[str, TaskConfig | Length | GanTraining]] = [
            (f"tasks.{index}", self.tasks[index]),
            *([first] if index == 0 else []),
            ("training", self.training),
            first,  # where every task is a first one
        ]
        place, length = next(each for each in places if each[1].steps or each[1].epochs)
        return f"{place}.{'steps' if length.steps else 'epochs'}"

    def check_start(self, other: "GanExperiment") -> None:
        refuse_differences(self, other, ("seed", "network", "held_out"))
        if self.method.first_transforms != "neutral" and not self.adapters.contain(other.adapters):
            raise UserError(
                f"start={self.start}: it was trained with other adapter sizes; group sizes may be its own or "
                "multiples, and a first task with method.first_transforms=neutral fits all sizes and kinds"
            )
        if other.tasks[0] != self.tasks[0]:
            raise UserError(f"start={self.start}: its task is not the first of this sequence")

    @property
    def task_names(self) -> list[str]:
        return [task.name for task in self.tasks]

    @property
    def sequence(self) -> list[TaskConfig]:
        return self.tasks

    def init_of(self, task: str) -> str:
        own = {each.name: each.init for each in self.tasks}
        return own[task] or self.method.init


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:4]) + (", ..." if len(words) > 4 else "")


@dataclass
class GanTask:
    """One collection to learn: its name, its images, and how long.

    The images are opened when someone first asks for them: those of a finished task may be gone.
    """

    name: str
    open: Callable[[], ImageCollection]
    steps_for: Callable[[ImageCollection], int]  # optimizer steps

    @functools.cached_property
    def images(self) -> ImageCollection:
        return self.open()

    @property
    def is_open(self) -> bool:
        return "images" in vars(self)

    @functools.cached_property
    def steps(self) -> int:
        return self.steps_for(self.images)


def open_tasks(experiment: GanExperiment, processes: int) -> list[GanTask]:
    """The sequence; the images that training will read are opened and checked, before anything is trained.

    Those of finished tasks are left alone unless the method trains on them: an earlier collection may be gone.
    """
    method, names = experiment.method, experiment.task_names
    folder = RunFolder(Path(experiment.out))
    together = experiment.training.batch * processes * experiment.training.accumulation
    tasks = [_gan_task(experiment, task, folder.data_records().get(task.name), together) for task in experiment.tasks]
    finished = folder.finished(names)
    if experiment.start is not None:
        finished = finished or names[:1]
    needed = {task for last in range(len(finished), len(names)) for task in method.trains_on(names[: last + 1])}
    for task, config in zip(tasks, experiment.tasks, strict=True):
        if task.name in needed and len(task.images) < together:
            raise UserError(
                f"task {task.name}: {config.data} has {len(task.images)} images, fewer than one step takes "
                f"({together}); lower training.batch"
            )
        if task.name in needed:
            _check_measurements(experiment, task)
    return tasks


def _check_measurements(experiment: GanExperiment, task: GanTask) -> None:
    """Refuse a task that is too short for what its measurements are to decide."""
    training, every = experiment.training, experiment.evaluation.every_steps
    fewest = max(2 if training.selection == "best" else 0, training.patience + 1 if training.until == "plateau" else 0)
    if every and fewest and (found := math.ceil(task.steps / every)) < fewest:
        setting = "training.until=plateau" if training.until == "plateau" else "training.selection=best"
        raise UserError(
            f"task {task.name}: {setting} needs {fewest} measurements, and evaluation.every_steps={every} gives "
            f"{found} in {task.steps} steps; lower it, or train longer"
        )


def _gan_task(experiment: GanExperiment, task: TaskConfig, record: Mapping[str, Any] | None, together: int) -> GanTask:
    def open_unchanged() -> ImageCollection:
        images = open_task_images(experiment, task, record)
        if record and record.get("digest", images.digest) != images.digest:
            raise UserError(
                f"task {task.name}: {recorded_path(task.data, record)} holds other images than this run was started "
                f"with; put those back, or name where they are now: tasks.{experiment.tasks.index(task)}.data=PATH"
            )
        return images

    def steps_for(images: ImageCollection) -> int:
        length = next(each for each in experiment.lengths(task) if each.steps or each.epochs)
        return length.steps or max(1, math.ceil((length.epochs or 0.0) * len(images) / together))

    return GanTask(task.name, open_unchanged, steps_for)


def open_task_images(
    experiment: GanExperiment, task: TaskConfig, record: Mapping[str, Any] | None = None, *, measured: bool = False
) -> ImageCollection:
    """A task's images: to train on, or (`measured`) those that scores compare with, which may be held out.

    record: where the run found them when it started.
    """
    path, digest = recorded_path(task.data, record), (record or {}).get("digest")
    size = experiment.network.sizes[-1]
    images = open_images(path, size=size, seed=experiment.seed, limit=task.limit, digest=digest)
    if not experiment.held_out:
        return images
    parts = held_out(len(images), experiment.held_out, stream(0, task.name, "held out"))
    return Selection(images, parts[measured].tolist())
