"""A run folder, read back."""

import shlex
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from eftgan.config import load
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.runfolder import RunFolder
from eftgan.scores import read_scores
from eftgan.training.experiment import Experiment

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


class SavedRun(Generic[AnyExperiment]):
    """A run; subclasses know which kind of experiment it is."""

    experiment_type: ClassVar[type[Experiment]]
    experiment: AnyExperiment

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path))
        kind = self.experiment_type.kind
        if not self.folder.config.is_file():
            raise UserError(f"{path}: no run there (config.yaml is missing); train one with: eftgan train {kind}")
        if (its := self.folder.read_facts().get("kind", kind)) != kind:
            raise UserError(f"{path} is a {its} run, not a {kind} run")
        self.experiment = load(self.experiment_type, self.folder.config)  # type: ignore[assignment]

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in order, trained or not."""
        return self.experiment.task_names

    @property
    def keeps_tasks(self) -> bool:
        """Whether every task stays to the bit as it was just learned."""
        return self.folder.keeps_tasks

    @property
    def trained(self) -> list[str]:
        """Names of the tasks up to the last one whose file is there, so that places are those in `tasks`."""
        there = [i for i, name in enumerate(self.tasks) if self.folder.task_file(i, name).exists()]
        return self.tasks[: there[-1] + 1] if there else []

    def require_trained(self) -> None:
        """Refuse a run that has nothing to show yet."""
        if not self.trained:
            remedy = f"eftgan train {self.experiment.kind} --resume {shlex.quote(str(self.folder.path))}"
            raise UserError(f"{self.folder.path}: no task is trained yet; continue with: {remedy}")

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
                fresh = self.experiment.method.fresh
                share = "a whole network" if fresh else f"{score.value:.2%} of the base's parameters"
                lines.append(f"growth   {share} per task")
        return "\n".join(lines)

    def describe_network(self) -> str:
        """One line about the network."""
        raise NotImplementedError

    def data_of(self, index: int) -> str:
        """Where a task's images come from."""
        raise NotImplementedError

    def summary(self) -> str:
        """What came out, and what a person does next."""
        raise NotImplementedError
