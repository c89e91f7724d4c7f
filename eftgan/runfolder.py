"""Where a run keeps its files, for those who train and those who report: needs no torch.

run.json  config.yaml  scores.jsonl  report.html
shared.safetensors            theta, once (methods that freeze it)
tasks/02-birds.safetensors    tau_t; or the whole generator, where theta goes on changing ("kind": "full")
state/00003000.safetensors    everything that training needs to go on; the last two are kept
logits/TESTED/TASK.safetensors    what a classifier's task says of the test images of another
inference/02-birds.safetensors    what a task keeps for a rule of inference that was chosen after it was trained
samples/after-02-birds/01-cats.png    samples/real/01-cats.png
curves/01-cats.json           what was measured while the task trained, where that was asked for
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.errors import UserError
from eftgan.files import remove_leftovers, write_json

DIVERGED = "diverged"  # in run.json: where the last start ended because a loss was not finite
FINISHED = "finished"  # in run.json: all tasks are trained, drawn and measured as config.yaml says


class Busy(UserError):
    """Another process is writing the run."""


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def facts(self) -> Path:
        return self.path / "run.json"

    @property
    def scores(self) -> Path:
        return self.path / "scores.jsonl"

    @property
    def shared(self) -> Path:
        return self.path / "shared.safetensors"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    def task_file(self, index: int, name: str) -> Path:
        return self.path / "tasks" / f"{index + 1:02d}-{name}.safetensors"

    def inference_file(self, index: int, name: str) -> Path:
        return self.path / "inference" / self.task_file(index, name).name

    def task_files(self) -> list[Path]:
        """The task files that there are, in the order of the tasks."""
        return sorted((self.path / "tasks").glob("*.safetensors"))

    @property
    def keeps_tasks(self) -> bool:
        """Whether every task stays as it was just learned: shared weights are frozen, each task has a file."""
        return self.shared.exists()

    def sample_grid(self, tasks: Sequence[str], after: int, tested: int) -> Path:
        """Pictures of a task after a task. A kept task is drawn once; runs made before that was so have all of them."""
        if self.keeps_tasks and after > tested and not self._grid(tasks, after, tested).exists():
            return self._grid(tasks, tested, tested)
        return self._grid(tasks, after, tested)

    def _grid(self, tasks: Sequence[str], after: int, tested: int) -> Path:
        folder = f"after-{after + 1:02d}-{tasks[after]}"
        return self.samples / folder / f"{tested + 1:02d}-{tasks[tested]}.png"

    def curve(self, index: int, name: str) -> Path:
        """What was measured while a task trained."""
        return self.path / "curves" / f"{index + 1:02d}-{name}.json"

    def real_grid(self, index: int, name: str) -> Path:
        return self.samples / "real" / f"{index + 1:02d}-{name}.png"

    def read_facts(self) -> dict[str, Any]:
        """What training wrote down about the run (run.json), nothing where the file is missing."""
        if not self.facts.is_file():
            return {}
        try:
            facts = json.loads(self.facts.read_text())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.facts} is not valid JSON ({error}); restore or delete it") from error
        tasks = facts.get("tasks", []) if isinstance(facts, dict) else None
        if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
            raise UserError(f"{self.facts} must hold a JSON object with a list of tasks; restore or delete it")
        return facts

    def note_finished(self) -> None:
        """Write down that nothing is left to do; the next start takes it back until it has ended."""
        write_json(self.facts, self.read_facts() | {FINISHED: True})

    @property
    def is_finished(self) -> bool:
        """Whether all that config.yaml asks for was trained, drawn and measured."""
        return self.config.is_file() and bool(self.read_facts().get(FINISHED))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against a second writer; the lock ends with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = open(self.path / ".lock", "a+")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{self.path}: the run folder cannot be written ({error.strerror})") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                handle.seek(0)
                raise Busy(
                    f"{self.path}: another process (id {handle.read().strip() or 'unknown'}) is writing this run; "
                    "wait for it or choose another out="
                ) from error
            with contextlib.suppress(OSError):  # on a full disk the lock holds all the same
                handle.truncate(0)
                os.write(handle.fileno(), f"{os.getpid()} on {socket.gethostname()}".encode())
            remove_leftovers(self.path)
            yield

    @property
    def classes(self) -> Path:
        return self.path / "classes.json"

    def read_classes(self) -> dict[str, list[str]]:
        """A classifier's classes by task, in the order of the head's outputs."""
        return json.loads(self.classes.read_text()) if self.classes.is_file() else {}

    def finished(self, names: Sequence[str]) -> list[str]:
        """The tasks, from the first on, whose files are there without a gap."""
        there = [self.task_file(index, name).is_file() for index, name in enumerate(names)]
        return list(names[: (*there, False).index(False)])

    def data_records(self) -> dict[str, dict[str, Any]]:
        """By task (a classifier's: by source), where its data is and what it held when the run started."""
        records = self.read_facts().get("data")
        return records if isinstance(records, dict) else {}

    def state_files(self) -> list[Path]:
        """Resume states, oldest first."""
        folder = self.path / "state"
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: a file stands where the run keeps its resume states; move it away")
        return sorted(folder.glob("[0-9]*.safetensors"))
