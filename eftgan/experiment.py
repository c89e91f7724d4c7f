"""Experiments as typed configs, and the functions that build networks, data and trainers from them."""

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn
from typing_extensions import Doc

from eftgan import __version__
from eftgan.adapters import AdapterConfig
from eftgan.config import FREE_KEYS, Count, Positive, dump, load, plain
from eftgan.data.collection import ImageCollection
from eftgan.data.sequences import check_sequence, open_images, recorded_path
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.files import file_digest, write_json, write_text
from eftgan.methods import AnyMethod, Eft, Method
from eftgan.models.stackgan import Discriminator, Generator, StackGanConfig, init_weights
from eftgan.names import INITS, NEAREST
from eftgan.runfolder import RunFolder
from eftgan.scores import read_scores
from eftgan.training.gan import GENERATOR, GanTask, GanTraining


@dataclass(frozen=True)
class TaskConfig:
    """One collection of the sequence."""

    name: Annotated[str, Doc("letters, digits, _ and -")]
    data: Annotated[str, Doc("an LMDB folder made by data_prep, or shapes:<kind> for built-in pictures")]
    limit: Annotated[Count | None, Doc("use that many images")] = None
    steps: Annotated[Count | None, Doc("in place of training.steps")] = None
    epochs: Annotated[Positive | None, Doc("in place of training.epochs")] = None
    init: Annotated[str | None, Doc("in place of method.init")] = None


@dataclass(frozen=True)
class Adapters:
    """The transformations after every convolution."""

    a: Annotated[int, Field(ge=0), Doc("group size of the 3x3 convolution; 0 leaves it out")] = 32
    b: Annotated[int, Field(ge=0), Doc("group size of the 1x1 convolution; 0 leaves it out")] = 16
    mode: Annotated[Literal["serial", "parallel"], Doc("after the convolution, or beside it")] = "serial"
    bias: Annotated[bool, Doc("whether both carry a bias, as in the paper's counts")] = True
    exclude: Annotated[list[str], Doc("patterns of layer names that stay shared")] = field(default_factory=list)
    sizes: Annotated[dict[str, tuple[int, int]], Doc("pattern of layer names -> its own [a, b]")] = field(
        default_factory=dict
    )

    def contain(self, other: "Adapters") -> bool:
        """Whether transforms of the other sizes are a special case of these: the same ones or narrower groups."""
        alike = all(getattr(self, key) == getattr(other, key) for key in ("mode", "bias", "exclude"))
        pairs = [(self.a, self.b), *self.sizes.values()]
        narrower = all(_divides(other.a, a) and _divides(other.b, b) for a, b in pairs)
        return alike and (self == other or (self.mode == "serial" and not other.sizes and narrower))

    def config(self, heads: Sequence[str] = ()) -> AdapterConfig:
        return AdapterConfig(self.a, self.b, self.mode, self.bias, tuple(heads), tuple(self.exclude), dict(self.sizes))


def _divides(size: int, wider: int) -> bool:
    return size == wider or (0 < size < wider and wider % size == 0)


@dataclass(frozen=True)
class Evaluation:
    """What is measured after every task while training; `eftgan evaluate` does more at any time."""

    features: Annotated[
        Literal["none", "random", "inception"],
        Doc("inception: FID; random: FD-random, a quick distance over a fixed random network; none: nothing"),
    ] = "random"
    samples: Annotated[int, Field(ge=2, le=1_000_000), Doc("images generated for each measurement")] = 1000


@dataclass(frozen=True)
class GanExperiment:
    """A generator trained on one collection after another."""

    tasks: Annotated[list[TaskConfig], Doc("the sequence, in order")]
    out: Annotated[str, Doc("the run's folder; an unfinished run there is continued")] = "runs/gan"
    seed: Annotated[int, Field(ge=0), Doc("fixes weights, data order and noise")] = 0
    network: Annotated[StackGanConfig, Doc("StackGAN-v2")] = field(default_factory=StackGanConfig)
    adapters: Annotated[Adapters, Doc("EFT transformations")] = field(default_factory=Adapters)
    method: Annotated[AnyMethod, Doc("the continual-learning method")] = field(default_factory=Eft)
    training: Annotated[GanTraining, Doc("steps, batches, optimizers")] = field(default_factory=GanTraining)
    evaluation: Annotated[Evaluation, Doc("after every task")] = field(default_factory=Evaluation)
    log_with: Annotated[list[str], Doc("Accelerate's trackers, e.g. [tensorboard]")] = field(default_factory=list)
    start: Annotated[str | None, Doc("a one-task run whose first task is taken over instead of trained")] = None
    title: Annotated[str | None, Doc("what reports call this run (default: the method's name)")] = None

    def __post_init__(self) -> None:
        check_sequence(self.task_names)
        for task in self.tasks:
            if not any((task.steps, task.epochs, self.training.steps, self.training.epochs)):
                raise UserError(f"task {task.name}: how long? Set training.steps or training.epochs")
        if getattr(self.method, "base", "train") == "pretrained":
            raise UserError("method.base: pretrained is for classifiers; a GAN takes over a trained task by start=RUN")
        check_inits(self.method, [(task.name, task.init) for task in self.tasks])

    def refuse_start(self, other: "GanExperiment") -> None:
        """Refuse a run whose first task is not the one that this experiment would train."""
        refuse_differences(self, other, ("seed", "network"))
        if not self.adapters.contain(other.adapters):
            raise UserError(f"start={self.start}: its adapters are others; group sizes may be its or multiples of them")
        if other.tasks[0] != self.tasks[0]:
            raise UserError(f"start={self.start}: its task is not the first of this sequence")

    @property
    def task_names(self) -> list[str]:
        return [task.name for task in self.tasks]


def check_inits(method: Method, tasks: Sequence[tuple[str, str | None]]) -> None:
    """Refuse a later task (name, its own `init`) that would start neither in a known way nor from an earlier one."""
    earlier: list[str] = []
    for name, own in tasks:
        known = [*INITS, NEAREST, *earlier]
        init = own or method.init
        if earlier and init not in known:
            key = "init" if own else "method.init"
            raise UserError(f"task {name}: {key} {init!r} is unknown there; choose from: {', '.join(known)}")
        earlier.append(name)


class SavedRun:
    """A run folder, read back; subclasses know which kind of experiment it is."""

    kind: type
    entry: str  # the program that makes such runs

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path))
        if not self.folder.config.is_file():
            raise UserError(f"{path}: no run there (config.yaml is missing); train one with: python {self.entry}")
        self.experiment = load(self.kind, self.folder.config)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in order, trained or not."""
        return self.experiment.task_names

    @property
    def trained(self) -> list[str]:
        """Names of the tasks up to the last one whose file is there, so that places are those in `tasks`."""
        there = [i for i, name in enumerate(self.tasks) if self.folder.task_file(i, name).exists()]
        return self.tasks[: there[-1] + 1] if there else []

    def require_trained(self) -> None:
        """Refuse a run that has nothing to show yet."""
        if not self.trained:
            raise UserError(f"{self.folder.path}: no task is trained yet; continue with: python {self.entry}")

    def index(self, task: str | int) -> int:
        """Place of a trained task in `tasks`, from its name or its number (counted from 1)."""
        self.require_trained()
        trained = self.trained
        if str(task) in trained:
            return trained.index(str(task))
        if str(task).isdigit() and 1 <= int(task) <= len(trained):
            return int(task) - 1
        raise UserError(f"no task {str(task)!r} in {self.folder.path}; it has: {', '.join(trained)}")

    def describe(self) -> str:
        """Tasks, steps, files and digests, as text."""
        lines = [
            f"run      {self.folder.path}",
            f"method   {self.experiment.method.name}, seed {self.experiment.seed}",
            f"network  {self.describe_network()}",
        ]
        if self.folder.shared.exists():
            lines.append(f"shared   {self.folder.shared.stat().st_size:,} bytes, {file_digest(self.folder.shared)}")
        for index, name in enumerate(self.tasks):
            path = self.folder.task_file(index, name)
            state = f"{path.stat().st_size:,} bytes, {file_digest(path)}" if path.exists() else "not trained yet"
            lines.append(f"task {index + 1:<3} {name}: {state}  ({self.data_of(index)})")
        for score in read_scores(self.folder.scores):
            if self.trained and score.metric == "growth" and score.tested_on == self.trained[-1]:
                share = (
                    "a whole network" if self.experiment.method.fresh else f"{score.value:.2%} of the base's parameters"
                )
                lines.append(f"growth   {share} per task")
        return "\n".join(lines)

    def describe_network(self) -> str:
        """One line about the network."""
        raise NotImplementedError

    def data_of(self, index: int) -> str:
        """Where a task's images come from."""
        raise NotImplementedError


def build_networks(experiment: GanExperiment) -> dict[str, nn.Module]:
    """Generator and discriminators with their banks in, weights fixed by the seed, no task yet."""
    config, seed = experiment.network, experiment.seed
    networks: dict[str, nn.Module] = {GENERATOR: Generator(config)}
    networks |= {f"discriminator{size}": Discriminator(size, config.ndf) for size in config.sizes}
    for role, network in networks.items():
        init_weights(network, stream(seed, "weights", role))
    heads = {role: () if role == GENERATOR else ("logits",) for role in networks}
    experiment.method.prepare(networks, {role: experiment.adapters.config(heads[role]) for role in networks})
    return networks


def build_generator(experiment: GanExperiment) -> Generator:
    """The generator alone, for sampling."""
    generator = init_weights(Generator(experiment.network), stream(experiment.seed, "weights", GENERATOR))
    experiment.method.prepare({GENERATOR: generator}, {GENERATOR: experiment.adapters.config()})
    return generator


def open_tasks(experiment: GanExperiment, processes: int) -> list[GanTask]:
    """The sequence; the images that training will read are opened and checked, before anything is trained.

    Those of finished tasks are left alone unless the method trains on them: an earlier collection may be gone.
    """
    method, names = experiment.method, experiment.task_names
    if processes > 1 and len(method.trains_on(names)) > 1:
        raise UserError(
            f"method.name: {method.name} trains the parts of several tasks in turn, which processes cannot "
            "average; start it as one process"
        )
    folder, together = RunFolder(Path(experiment.out)), experiment.training.batch * processes
    together *= experiment.training.accumulation
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
    return tasks


def _gan_task(experiment: GanExperiment, task: TaskConfig, record: Mapping[str, Any] | None, together: int) -> GanTask:
    training = experiment.training

    def open_unchanged() -> ImageCollection:
        images = open_task_images(experiment, task, record)
        if record and record.get("digest", images.digest) != images.digest:
            raise UserError(
                f"task {task.name}: {recorded_path(task.data, record)} holds other images than this run was started "
                f"with; put those back, or name where they are now: tasks.{experiment.tasks.index(task)}.data=PATH"
            )
        return images

    def steps_for(images: ImageCollection) -> int:
        if task.steps or (training.steps and not task.epochs):
            return task.steps or training.steps
        return max(1, math.ceil((task.epochs or training.epochs) * len(images) / together))

    return GanTask(task.name, open_unchanged, steps_for, task.init)


def open_task_images(
    experiment: GanExperiment, task: TaskConfig, record: Mapping[str, Any] | None = None
) -> ImageCollection:
    """A task's images; `record`: where the run found them when it started."""
    path = recorded_path(task.data, record)
    return open_images(path, size=experiment.network.sizes[-1], seed=experiment.seed, limit=task.limit)


def start_folder(
    experiment: Any,
    folder: RunFolder,
    kind: str,
    command: str,
    data: Mapping[str, Mapping[str, str]],
    nearest: Mapping[str, Any] | None = None,
) -> None:
    """Write config.yaml and run.json, or check that the folder's earlier run is the same experiment.

    data: by task or source, its `data_record`. nearest: by task, what `nearest_earlier` found where a task is to
    start from the nearest one.
    """
    known = folder.read_facts()
    if folder.config.exists():
        refuse_other_experiment(load(type(experiment), folder.config), experiment, folder)
    write_text(folder.config, dump(experiment))
    facts = {
        "name": folder.path.name,
        "kind": kind,
        "method": experiment.method.name,
        "seed": experiment.seed,
        "tasks": experiment.task_names,
        "command": command,
        "data": _data_facts(folder.data_records(), data),
        "versions": versions(),
    }
    if experiment.title:
        facts["title"] = experiment.title
    if nearest or known.get("nearest"):
        facts["nearest"] = known.get("nearest", {}) | {task: asdict(found) for task, found in (nearest or {}).items()}
    write_json(folder.facts, facts)


def _data_facts(
    before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, Any]]:
    """Where every task's data is; what the run resolved before stays, whatever folder it is continued from."""
    moved = {name: new for name, new in now.items() if before.get(name, {}).get("typed") != new["typed"]}
    return {**before, **{name: {**before.get(name, {}), **new} for name, new in moved.items()}}


def start_of(experiment: Any) -> RunFolder | None:
    """The run that the first task is taken from, checked to be the same first task."""
    if experiment.start is None:
        return None
    folder = RunFolder(Path(experiment.start))
    if not folder.config.is_file():
        raise UserError(f"start={experiment.start}: no run there (config.yaml is missing)")
    if experiment.method.follows_training or experiment.method.fresh:
        raise UserError(f"start={experiment.start}: method {experiment.method.name} must train the first task itself")
    other = load(type(experiment), folder.config)
    if len(other.task_names) != 1:
        raise UserError(f"start={experiment.start}: it must have one task, the first of this sequence")
    mine, its = (each.method.own_first_task for each in (experiment, other))
    if mine != its:
        theirs, wanted = (", ".join(f"{k}={v}" for k, v in own.items()) or "the usual settings" for own in (its, mine))
        raise UserError(f"start={experiment.start}: its first task was trained with {theirs}, not with {wanted}")
    experiment.refuse_start(other)
    if not folder.task_file(0, other.task_names[0]).exists():
        raise UserError(f"start={experiment.start}: its task is not trained to the end; run it first")
    if not folder.state_files():
        raise UserError(f"{folder.path / 'state'}: no resume state to take the first task from; train that run again")
    return folder


def refuse_differences(experiment: Any, other: Any, keys: Sequence[str]) -> None:
    """Refuse to start from a run that differs in what makes the first task."""
    for key in keys:
        if getattr(other, key) != getattr(experiment, key):
            raise UserError(f"start={experiment.start}: its {key} is another one, and so is its first task")


def refuse_other_experiment(before: Any, now: Any, folder: RunFolder) -> None:
    """A run folder holds one experiment; it may only be given further tasks."""
    old, new = _flat(plain(before)), _flat(plain(now))
    length = len(before.tasks)
    if len(now.tasks) < length:
        raise UserError(f"{folder.path}: this run has {length} tasks, the config {len(now.tasks)}; choose another out=")
    for key in {**old, **new}:
        top, *place = key.split(".")
        further = top in ("tasks", "sources") and (
            int(place[0]) >= len(getattr(before, top)) or place[-1] in ("take", "data")
        )
        if old.get(key) != new.get(key) and not further and not key.startswith(FREE_KEYS):
            raise UserError(
                f"{folder.path}: holds a run with {key}={json.dumps(old.get(key))}, now it is "
                f"{json.dumps(new.get(key))}; choose another out= or remove the folder"
            )
    if now.task_names[:length] != before.task_names:
        raise UserError(f"{folder.path}: further tasks must come after this run's {', '.join(before.task_names)}")


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as dotted keys."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        return {prefix.removesuffix("."): data}
    return {key: value for name, inner in items for key, value in _flat(inner, f"{prefix}{name}.").items()}


def versions() -> dict[str, str]:
    """What the figures of a run depend on."""
    packages = ("torch", "torchvision", "accelerate", "pytorch-fid", "lmdb", "safetensors", "pillow")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"eftgan": __version__, "python": platform.python_version(), **found}
