"""Several processes share runs: who holds the lock of a run's folder trains it, and all see when it is finished."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.errors import UserError
from eftgan.runfolder import Busy, RunFolder
from eftgan.training.experiment import Experiment
from eftgan.training.kind import Kind
from eftgan.training.stopping import Stopped

AnyKind = Kind[Any, Any, Any]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0


@dataclass(frozen=True)
class Job:
    """A run to train, and the one whose finished first task it begins with."""

    experiment: Experiment
    needs: "Job | None" = None

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def folder(self) -> RunFolder:
        return RunFolder(Path(self.experiment.out))


def train_unless_busy(kind: AnyKind, job: Job, command: str) -> bool:
    """Train a run to its end; false where another process is at it."""
    try:
        with job.folder.locked():
            if not kind.is_finished(job.experiment):
                print(job.folder.path, flush=True)
                kind.train(job.experiment, command, locked=True)
    except Busy:
        return False
    return True


def train_or_wait(kind: AnyKind, job: Job, command: str) -> None:
    """Return when the run is finished, whoever trained it; a run whose process died is taken up."""
    pause = Pause()
    while not (kind.is_finished(job.experiment) or train_unless_busy(kind, job, command)):
        pause.wait([job.name])


def share_jobs(kind: AnyKind, jobs: Sequence[Job], command: str) -> None:
    """Train runs that no other process trains until all are finished, each once, whoever does it.

    A run waits for the first task that it needs, and other runs are trained meanwhile. A run that fails is left out,
    with those that need it; they are named in the end.
    """
    ended: set[str] = set()
    failed: dict[str, str] = {}
    pause = Pause()
    while True:
        ended |= {job.name for job in jobs if job.name not in ended and kind.is_finished(job.experiment)}
        lost = {job.name for job in jobs if job.name in failed or (job.needs and job.needs.name in failed)}
        left = [job for job in jobs if job.name not in ended | lost]
        if not left:
            break
        ready = [job for job in left if job.needs is None or job.needs.name in ended]
        trained = next((job for job in ready if _attempt(kind, job, command, failed)), None)
        if trained is None:
            pause.wait([job.name for job in ready if job.name not in failed])
        else:
            ended |= {trained.name} - failed.keys()
            pause = Pause()
    if failed:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise UserError(f"{len(lost)} of {len(jobs)} runs failed; the same command tries them again:\n{reasons}")


def _attempt(kind: AnyKind, job: Job, command: str, failed: dict[str, str]) -> bool:
    """Whether this process was at the run; why it failed, if it did, is noted."""
    try:
        return train_unless_busy(kind, job, command)
    except (Stopped, KeyboardInterrupt):
        raise
    except UserError as error:
        failed[job.name] = str(error)
    except Exception as error:  # one method's fault must not end the others' night
        traceback.print_exc()
        failed[job.name] = f"{type(error).__name__}: {error}"
    print(f"{job.name} failed: {failed[job.name]}", flush=True)
    return True


class Pause:
    """Waits a little, then longer; says for what, whenever that changes."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep, self._seconds, self._said = sleep, FIRST_PAUSE_S, ""

    def wait(self, names: Sequence[str]) -> None:
        text = f"waiting for other processes, which train {', '.join(names)}"
        if names and text != self._said:
            print(text, flush=True)
            self._said = text
        self._sleep(self._seconds)
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_S)
