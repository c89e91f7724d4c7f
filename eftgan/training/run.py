"""A run folder, read back."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

from eftgan import __version__
from eftgan.config import load
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.hub.card import Shown
from eftgan.hub.package import WEIGHTS, Sharing, fetch_description, write_files
from eftgan.hub.remote import HubRepo
from eftgan.runfolder import RunFolder
from eftgan.scores import read_scores
from eftgan.training.experiment import Experiment

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


def place_of(task: str | int, names: Sequence[str], where: str) -> int:
    """Place of a task from its name or its number (counted from 1)."""
    if str(task) in names:
        return names.index(str(task))
    if str(task).isdigit() and 1 <= int(task) <= len(names):
        return int(task) - 1
    raise UserError(f"no task {str(task)!r} in {where}; it has: {', '.join(names)}")


class SavedRun(Generic[AnyExperiment]):
    """A run; subclasses know which kind of experiment it is."""

    experiment_type: ClassVar[type[Experiment]]
    experiment: AnyExperiment
    pipeline: ClassVar[str] = "other"  # the Hub's word for what such a network does
    tags: ClassVar[tuple[str, ...]] = ()  # by which people find it there

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

    @property
    def present(self) -> list[str]:
        """Names of the trained tasks that can be used: a run may have been fetched without the files of the others."""
        if not self.keeps_tasks:
            return self.trained  # the last file serves all of them
        if self.experiment.method.chained:
            return self.folder.finished(self.tasks)
        return [name for index, name in enumerate(self.tasks) if self.folder.task_file(index, name).exists()]

    def needed(self, tasks: Sequence[str]) -> list[int]:
        """Places of the tasks whose files serve these tasks: where tasks add to shared weights, those before as well.

        Of shared weights that are frozen; elsewhere one file serves all the tasks that were seen by then.
        """
        places = {self.tasks.index(task) for task in tasks}
        return list(range(max(places) + 1)) if self.experiment.method.chained else sorted(places)

    def task_files(self, tasks: Sequence[str]) -> list[Path]:
        """The files of these places."""
        return [self.folder.task_file(index, self.tasks[index]) for index in self.needed(tasks)]

    def index(self, task: str | int) -> int:
        """Place of a trained task in `tasks`, from its name or its number (counted from 1); it must be present."""
        self.require_trained()
        index = place_of(task, self.trained, str(self.folder.path))
        files = self.task_files([self.tasks[index]]) if self.keeps_tasks else []
        if missing := [path for path in files if not path.exists()]:
            rest = ", ".join(self.present) or "none"
            raise UserError(f"{missing[0]}: no such file, and task {self.tasks[index]} needs it; tasks here: {rest}")
        return index

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, task: str | int | None = None, revision: str | None = None, token: str | None = None
    ) -> Self:
        """A run from the Hub (USER/NAME) or from a folder.

        task: fetch only this one's file, and what all tasks share. revision: a branch, tag or commit.
        """
        if Path(name).is_dir():
            return cls(name)
        repo = HubRepo.parse(str(name), revision, token)
        return cls(fetch_description(repo)).with_tasks(repo, task)

    def with_tasks(self, repo: HubRepo, task: str | int | None = None) -> Self:
        """Fetch the task files of a run whose description was fetched: of one task, or all."""
        wanted = [WEIGHTS]
        if task is not None:
            name = self.tasks[place_of(task, self.tasks, repo.name)]
            if self.keeps_tasks:  # elsewhere there is but one file
                wanted = [path.relative_to(self.folder.path).as_posix() for path in self.task_files([name])]
        repo.at(self.folder.path).fetch(wanted)
        return self

    def save_pretrained(self, folder: str | Path, *, licence: str | None = None) -> None:
        """Write what `push_to_hub` would share into a new folder: no data, no places on this machine."""
        write_files(self.sharing().files(Path(folder).resolve().name, licence), Path(folder), self.folder.path)

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool = False,
        licence: str | None = None,
        revision: str | None = None,
        token: str | None = None,
    ) -> str:
        """Share the run on the Hub as USER/NAME; returns its address.

        licence: the Hub's short name of one, such as mit, for the model card.
        """
        repo = HubRepo.parse(name, revision, token)
        trained = len(self.trained)
        message = f"{trained} task{'s' * (trained != 1)}: {', '.join(self.trained[:8])}{' ...' * (trained > 8)}"
        return repo.push(self.sharing().files(repo.name, licence), message, private=private)

    def sharing(self) -> Sharing:
        """What others are given of the run."""
        self.require_trained()
        tasks, last = self.present, len(self.trained) - 1
        weights = self.task_files(tasks) if self.keeps_tasks else [self.folder.task_file(last, self.trained[last])]
        shown = Shown(
            tags=self.tags,
            pipeline=self.pipeline,
            network=self.describe_network(),
            method=self.experiment.method.name,
            tasks=tasks,
            classes=self.folder.read_classes(),
            example=self.example(tasks[-1]),
            command=self.command(tasks[-1]),
            one_file_each=self.keeps_tasks,
        )
        return Sharing(self.folder, self.experiment_type, weights, shown, self.picture())

    def example(self, task: str) -> list[str]:
        """Python lines that use the run as `run`, for its model card."""
        return []

    def command(self, task: str) -> str:
        """A command that uses it, where {name} stands for its name."""
        return "eftgan info hf:{name}"

    def picture(self) -> bytes | None:
        """A PNG for its model card; none where there is nothing to see."""
        return None

    def export(self, task: str, out: Path) -> list[str]:
        """Write a task, or all of them where it is "all", as a program; returns the lines that tell how to use it."""
        raise UserError(f"{self.folder.path}: a {self.experiment.kind} run cannot be exported")

    def origin(self, tasks: Sequence[str]) -> dict[str, str]:
        """What an exported file says of the weights in it: the tasks, in order, and digests as `info` prints them."""
        files = self.task_files(tasks) if self.keeps_tasks else self.folder.task_files()[-1:]
        paths = [*([self.folder.shared] if self.keeps_tasks else []), *files]
        digests = {path.relative_to(self.folder.path).as_posix(): file_digest(path) for path in paths}
        facts = {"kind": self.experiment.kind, "method": self.experiment.method.name, "eftgan": __version__}
        classes = {task: names for task, names in self.folder.read_classes().items() if task in tasks}
        return {
            "task": ",".join(tasks),
            "digest": json.dumps(digests),
            **({"classes": json.dumps(classes)} if classes else {}),
            **facts,
        }

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
            missing = "no file here" if index < len(self.trained) else "not trained yet"
            state = f"{path.stat().st_size:,} bytes, {file_digest(path)}" if path.exists() else missing
            lines.append(f"task {index + 1:<3} {name}: {state}  ({self.data_of(index)})")
        for score in read_scores(self.folder.scores):
            if self.trained and score.metric == "growth" and score.tested_on == self.trained[-1]:
                whole = self.experiment.method.fresh and not score.value
                share = "a whole network" if whole else f"{score.value:.2%} of the base's parameters"
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
