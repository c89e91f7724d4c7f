"""Which trial comes next: Optuna's choice, kept in a journal file that several processes share."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.data.streams import stream_seed
from eftgan.errors import UserError
from eftgan.files import exclusive
from eftgan.studies.space import Axis, Params, combinations, trials_wanted

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.trial import TrialState
except ImportError as error:
    raise UserError("eftgan tune: optuna is not installed; pip install 'eftgan[tune]'") from error

Hold = Callable[[int], contextlib.ExitStack | None]  # the locks of a trial's folders; none where another process is


@dataclass(frozen=True)
class Taken:
    """A trial that is this process's to run; `held` keeps others from it."""

    number: int
    params: Params
    held: contextlib.ExitStack


class _Unlocked(JournalFileOpenLock):
    """No lock file, which a killed process would leave: all that is done to the journal is done inside `exclusive`."""

    def __init__(self) -> None:
        pass

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Trials:
    """The trials of one search, and what to try next."""

    def __init__(self, folder: Path, axes: Sequence[Axis], *, lower_is_better: bool) -> None:
        self._lock, self._axes = folder / ".lock", axes
        self._distributions = {axis.key: _distribution(axis) for axis in axes}
        self._all = combinations(axes)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        journal = folder / "trials.journal"
        with exclusive(self._lock):
            _drop_torn_line(journal)
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal), lock_obj=_Unlocked()))
            directions = optuna.study.StudyDirection
            direction = directions.MINIMIZE if lower_is_better else directions.MAXIMIZE
            self._study = optuna.create_study(
                storage=storage, study_name="eftgan", direction=direction, load_if_exists=True
            )

    def take(self, asked: int, hold: Hold) -> Taken | None:
        """A trial whose process died, else a new one; none where there are enough."""
        wanted = trials_wanted(self._axes, asked)
        with exclusive(self._lock):
            for trial in self._in(TrialState.RUNNING):
                if (held := hold(trial.number)) is None:
                    continue
                if trial.params.keys() == self._distributions.keys():
                    return Taken(trial.number, dict(trial.params), held)
                self._study.tell(trial.number, state=TrialState.FAIL)  # killed before its values were drawn
                held.close()
            if len(self._tried()) >= wanted:
                return None
            number, params = self._ask(wanted)
            held = hold(number)
            if held is None:
                raise UserError(f"trial {number}: another process writes its folder, though the trial is new")
            return Taken(number, params, held)

    def running(self) -> list[int]:
        """Trials that some process is at, or was when it died."""
        return [trial.number for trial in self._in(TrialState.RUNNING)]

    def tell(self, number: int, value: float | None) -> None:
        """Note how a trial ended; none: it failed."""
        with exclusive(self._lock):
            if value is None:  # known to be bad, and not to be tried again: Optuna calls that pruned
                self._study.tell(number, state=TrialState.PRUNED)
            else:
                self._study.tell(number, value)

    def _in(self, *states: "TrialState") -> list[Any]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _tried(self) -> list[Params]:
        ran = self._in(TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)
        return [dict(trial.params) for trial in ran if trial.params.keys() == self._distributions.keys()]

    def _ask(self, wanted: int) -> tuple[int, Params]:
        """Every combination in turn where there are no more than wanted; else what TPE proposes, but nothing twice.

        The sampler is seeded by the number of the trial: a search that is interrupted goes on as it would have.
        """
        tried = self._tried()
        untried = [each for each in self._all or [] if each not in tried]
        if self._all is not None and len(self._all) <= wanted and not self._in(TrialState.WAITING):
            self._study.enqueue_trial(untried[0])
        seed = stream_seed("trial", len(tried)) % 2**32
        startup = min(10, max(3, wanted // 3))
        self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)
        trial = self._study.ask(self._distributions)
        if self._all is not None and trial.params in tried:
            self._study.tell(trial, state=TrialState.FAIL)
            self._study.enqueue_trial(untried[seed % len(untried)])
            trial = self._study.ask(self._distributions)
        return trial.number, dict(trial.params)


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.choices:
        return CategoricalDistribution(axis.choices)
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _drop_torn_line(journal: Path) -> None:
    """What a full disk left of a line would make the whole journal unreadable."""
    if journal.exists():
        content = journal.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with open(journal, "r+b") as handle:
                handle.truncate(whole)
