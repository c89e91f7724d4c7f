"""A kind of experiment: what it trains and measures. How training starts, goes on and ends is the same for all."""

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from accelerate import Accelerator
from torch import nn

from eftgan.config import load, plain, read_yaml
from eftgan.data.processes import Processes
from eftgan.errors import UserError
from eftgan.names import NEAREST, refuse_alike_names
from eftgan.runfolder import RunFolder
from eftgan.training.experiment import (
    Experiment,
    refuse_other_experiment,
    refuse_unmatched_patterns,
    start_folder,
    start_of,
)
from eftgan.training.hosts import connected, remove_if_new, require_common_folder, see_alike
from eftgan.training.launch import make_accelerator, refuse_single_images
from eftgan.training.memory import keep_freed_memory
from eftgan.training.resources import Resources, asked_in_vain, changes_of, resources_for
from eftgan.training.run import SavedRun
from eftgan.training.trainer import Task, Trainer

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)
AnyTask = TypeVar("AnyTask", bound=Task)
AnyRun = TypeVar("AnyRun", bound=SavedRun)


class Found(Protocol):
    """The earlier task that another one starts from."""

    @property
    def task(self) -> str: ...


@dataclass(frozen=True)
class Session(Generic[AnyExperiment, AnyTask, AnyRun]):
    """One start of training: everything that a trainer is made of."""

    experiment: AnyExperiment
    run: AnyRun
    tasks: list[AnyTask]
    networks: dict[str, nn.Module]
    accelerator: Accelerator
    start: RunFolder | None  # a run whose first task is taken over
    starts: Mapping[str, str]  # by task, where it starts in place of the method's `init`


class Kind(ABC, Generic[AnyExperiment, AnyTask, AnyRun]):
    """What is trained. A new kind is a folder beside `gan/` and `classifier/`, and a line in `KINDS`."""

    name: ClassVar[str]  # as methods' `only_for`, run.json and `eftgan train` call it
    sequence_key: ClassVar[str]  # the key of a config that lists what the tasks come from
    usual_methods: ClassVar[tuple[str, ...]]  # what `eftgan compare` compares where none are named
    verb: ClassVar[str]  # the command that people use its runs with
    tuning_metrics: ClassVar[tuple[str, ...]]  # what `eftgan tune` can judge by; the first is the usual one
    faster: ClassVar[tuple[str, ...]] = ()  # keys of `training` that came later: the same up to rounding, in less time
    experiment_type: type[AnyExperiment]
    run_type: type[AnyRun]

    @abstractmethod
    def open_tasks(self, experiment: AnyExperiment, processes: int) -> list[AnyTask]:
        """The sequence, what training will read of it opened and checked."""

    @abstractmethod
    def build_networks(self, experiment: AnyExperiment, tasks: Sequence[AnyTask]) -> dict[str, nn.Module]:
        """By role, with their banks in, weights fixed by the seed, no task yet."""

    @abstractmethod
    def data_records(self, experiment: AnyExperiment, tasks: Sequence[AnyTask]) -> dict[str, dict[str, str]]:
        """What the run is to remember of its data."""

    @abstractmethod
    def find_nearest(
        self, experiment: AnyExperiment, tasks: Sequence[AnyTask], wanted: Sequence[str]
    ) -> Mapping[str, Found]:
        """For every wanted task the earlier one of the most similar images."""

    @abstractmethod
    def make_trainer(self, session: Session[AnyExperiment, AnyTask, AnyRun]) -> Trainer[AnyTask]:
        """What takes the networks through the tasks, and measures and reports after each."""

    @abstractmethod
    def first_tasks(self, data: dict[str, Any], count: int) -> dict[str, Any]:
        """The keys by which a config is cut down to its first tasks."""

    @abstractmethod
    def shortened(self, data: dict[str, Any], share: float) -> dict[str, Any]:
        """The keys by which a config trains for a share of its epochs (one at least) or steps."""

    @abstractmethod
    def limited(self, data: dict[str, Any], images: int) -> dict[str, Any]:
        """The keys by which a config uses so many images."""

    @abstractmethod
    def length(self, experiment: AnyExperiment) -> str:
        """How long tasks are trained, in words."""

    @abstractmethod
    def image_size(self, experiment: AnyExperiment) -> int:
        """The side of the images that training reads, in pixels."""

    @abstractmethod
    def shares_first_task(self, experiment: AnyExperiment) -> bool:
        """Whether a first task trained by fine-tuning fits the method's networks."""

    def unmeasured(self, data: dict[str, Any]) -> dict[str, Any]:
        """The keys by which training leaves out scores that `measure` can make later."""
        return {}

    def measure(self, run: AnyRun, metric: str, tasks: Sequence[str], cache: Path) -> None:
        """Make sure that there are score lines of these tasks as they are after the last one.

        cache: a folder for what other runs can use again.
        """

    def accumulation(self, experiment: AnyExperiment) -> int:
        """Batches per optimizer step."""
        return 1

    def as_begun(self, experiment: AnyExperiment, folder: RunFolder) -> AnyExperiment:
        """A run from before there was a faster form of something goes on without it: its roundings differ."""
        known = read_yaml(folder.config).get("training") or {}
        unknown: dict[str, Any] = {key: False for key in self.faster if key not in known}
        return dataclasses.replace(experiment, training=dataclasses.replace(experiment.training, **unknown))

    def begin(self, run: AnyRun, tasks: Sequence[AnyTask]) -> None:
        """Write down what else the run's folder must hold before training."""

    def is_finished(self, experiment: AnyExperiment) -> bool:
        """Whether the folder holds just this experiment, by whatever path, trained, drawn and measured to the end."""
        folder = RunFolder(Path(experiment.out))
        if not folder.is_finished:
            return False
        both = (load(self.experiment_type, folder.config), experiment)
        held, asked = (plain(self.as_begun(each, folder)) for each in both)
        return held | {"out": None} == asked | {"out": None}

    def train(self, experiment: AnyExperiment, command: str, *, locked: bool = False) -> AnyRun | None:
        """Train every task, going on where the folder stands; after each one measure and report.

        The main process gets the finished run back, the others nothing. locked: the caller holds the folder's lock.
        """
        folder = RunFolder(Path(experiment.out))
        keep_freed_memory()
        accelerator = make_accelerator(
            folder.path,
            accumulation=self.accumulation(experiment),
            mixed_precision=experiment.training.mixed_precision,
            log_with=experiment.log_with,
        )
        processes = Processes.present()
        with connected(processes):
            see_alike(processes, [RunFolder(Path(path)) for path in (experiment.out, experiment.start) if path])
            with processes.agreeing():
                before = load(self.experiment_type, folder.config) if folder.config.exists() else None
                if before is not None:
                    experiment, before = self.as_begun(experiment, folder), self.as_begun(before, folder)
                resources = resources_for(experiment, folder, accelerator.num_processes)
            with resources.in_use():
                return self._train(experiment, before, command, accelerator, resources, locked)

    def _train(
        self,
        experiment: AnyExperiment,
        before: AnyExperiment | None,
        command: str,
        accelerator: Accelerator,
        resources: Resources,
        locked: bool,
    ) -> AnyRun | None:
        folder, processes = RunFolder(Path(experiment.out)), Processes.present()
        with processes.agreeing():  # what is wrong shows before anything is written
            tasks = self.open_tasks(experiment, processes.count)
            start = start_of(experiment)
            networks = self.build_networks(experiment, tasks)
            refuse_single_images(experiment.training.batch, networks)
            if before is None:  # a run that was begun with one goes on
                refuse_unmatched_patterns(experiment.adapters, networks)
            if before is None or before.task_names != experiment.task_names:
                refuse_alike_names(experiment.task_names)
            known, nearest = self._nearest(experiment, folder, tasks)
        with self._held(folder, processes, locked):
            with processes.agreeing():
                if processes.is_first:
                    changes: dict[str, Any] = {**changes_of(folder, resources)}
                    if before is not None:
                        changes |= refuse_other_experiment(before, experiment, folder)
                    records = self.data_records(experiment, tasks)
                    start_folder(experiment, folder, command, records, nearest, resources.facts, changes)
                    print(*start_lines(experiment, accelerator, resources, nearest), sep="\n", flush=True)
                    self.begin(self.run_type(folder.path), tasks)
            see_alike(processes, [folder])
            if experiment.log_with:
                accelerator.init_trackers(self.name)
            run = self.run_type(folder.path)
            own = {name: experiment.init_of(name) for name in experiment.task_names}
            starts = own | known | {task: found.task for task, found in nearest.items()}
            session = Session(experiment, run, tasks, networks, accelerator, start, starts)
            self.make_trainer(session).run(tasks)
            for tracker in accelerator.trackers:
                tracker.finish()
            if processes.is_first:
                folder.note_finished()
        return run if processes.is_first else None

    @contextlib.contextmanager
    def _held(self, folder: RunFolder, processes: Processes, locked: bool) -> Iterator[None]:
        """The first process holds the run's folder, which all of them see, unless its caller does already."""
        with contextlib.ExitStack() as stack:
            with processes.agreeing():
                if processes.is_first and not locked:
                    stack.enter_context(folder.locked())
            try:
                require_common_folder(processes, folder)
            except UserError:
                if processes.is_first:
                    remove_if_new(folder)
                raise
            yield

    def _nearest(
        self, experiment: AnyExperiment, folder: RunFolder, tasks: Sequence[AnyTask]
    ) -> tuple[dict[str, str], Mapping[str, Found]]:
        """Where tasks with `init: nearest` start: what an earlier start found, and what is found now."""
        known = {name: str(found["task"]) for name, found in folder.read_facts().get("nearest", {}).items()}
        later = [] if experiment.method.fresh else experiment.task_names[1:]
        wanted = [name for name in later if experiment.init_of(name) == NEAREST and name not in known]
        return known, self.find_nearest(experiment, tasks, wanted) if wanted else {}


def start_lines(
    experiment: Experiment, accelerator: Accelerator, resources: Resources, nearest: Mapping[str, Found]
) -> list[str]:
    """What a person wants to know before waiting for it."""
    method, offered = experiment.method, resources.threads_before
    lines = [
        f"{experiment.out}: {experiment.noun}, {method.title}, seed {experiment.seed}, "
        f"on {accelerator.device.type} ({resources})"
    ]
    if offered != resources.threads and experiment.training.threads is None:
        lines.append(f"threads as the run was begun with; training.threads={offered} takes what is offered now")
    if asked_in_vain():
        lines.append("accelerate was asked for several processes and started one; on CPUs use torchrun")
    return lines + [f"task {task} starts from {found}" for task, found in nearest.items()]
