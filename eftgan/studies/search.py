"""A search for settings: trials of one config, judged on images that no reported score is measured on."""

import contextlib
import copy
import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eftgan.config import FREE_KEYS, build, plain
from eftgan.errors import UserError
from eftgan.evaluation.metrics import METRICS, Metric
from eftgan.files import exclusive, write_json
from eftgan.runfolder import DIVERGED, Busy, RunFolder
from eftgan.scores import read_scores
from eftgan.studies.comparison import FIRST_TASKS, first_task, shared_first_task, with_overrides
from eftgan.studies.findings import (
    Finding,
    Scores,
    best_of,
    read_findings,
    write_finding,
    write_recipe,
    write_table,
)
from eftgan.studies.sharing import AnyKind, Job, Pause, train_or_wait
from eftgan.studies.space import Axis, Params, trials_wanted
from eftgan.studies.trials import Taken, Trials
from eftgan.training.experiment import Experiment
from eftgan.training.run import SavedRun

RECIPE = "tuned"


@dataclass(frozen=True)
class Question:
    """What a search asks. Its folder holds one: trials of another cannot be compared."""

    config: dict[str, Any]  # with the words that hold for all trials
    axes: list[str]
    metric: str
    on: list[str]  # tasks that are judged
    seeds: list[int]
    held_out: float


@dataclass(frozen=True)
class Search:
    """Trains trials, judges them, and writes down what was found."""

    kind: AnyKind
    source: Path  # the config
    before: dict[str, Any]  # as the config has it
    question: Question
    axes: list[Axis]
    out: Path
    command: str
    cache: Path | None = None  # statistics of a GAN's real images; None: .statistics in `out`

    @property
    def metric(self) -> Metric:
        return METRICS[self.question.metric]

    @property
    def recipe(self) -> Path:
        return self.out / f"{RECIPE}.yaml"

    def run(self, trials: int) -> Finding:
        """Train trials until there are so many, together with other processes; the best of all."""
        self._begin()
        journal = Trials(self.out, self.axes, lower_is_better=self.metric.lower_is_better)
        pause = Pause()
        while True:
            taken = journal.take(trials, self._hold)
            if taken is not None:
                with taken.held:
                    finding = self._try(taken)
                    self._note(finding)
                    journal.tell(finding.number, finding.value)
                pause = Pause()
            elif others := journal.running():
                pause.wait([f"trial {number}" for number in others])
            else:
                break
        best = best_of(self.findings(), self.metric)
        if best is None:
            raise UserError(f"{self.out}: every trial failed, see {self.out / 'trials.md'}; search elsewhere")
        return best

    def findings(self) -> list[Finding]:
        return read_findings(self.out)

    def left(self, trials: int) -> int:
        """How many of so many trials have not ended."""
        return max(0, trials_wanted(self.axes, trials) - len(self.findings()))

    def check(self) -> None:
        """Refuse what cannot be built or read, before anything is written."""
        example = {axis.key: axis.choices[0] if axis.choices else _example(axis) for axis in self.axes}
        for axis in self.axes:
            for choice in axis.choices or (_example(axis),):
                experiment = self._experiment(example | {axis.key: choice}, self.question.seeds[0], "trial")
                experiment.check_given([axis.override(choice)])
        if not self.out.exists():
            self.kind.open_tasks(experiment, 1)

    def _begin(self) -> None:
        """Keep the question, or refuse one that differs from the folder's."""
        path, asked = self.out / "search.json", json.loads(json.dumps(asdict(self.question)))
        with exclusive(self.out / ".lock"):
            known = json.loads(path.read_text()) if path.is_file() else asked
            for key, value in asked.items():
                if known.get(key) != value:
                    raise UserError(
                        f"{self.out}: holds a search with another {key} ({json.dumps(known.get(key))[:200]}); "
                        "choose another --out"
                    )
            write_json(path, asked)

    def _folder(self, number: int, seed: int) -> RunFolder:
        return RunFolder(self.out / f"trial-{number:03d}-seed{seed}")

    def _hold(self, number: int) -> contextlib.ExitStack | None:
        with contextlib.ExitStack() as stack:
            try:
                for seed in self.question.seeds:
                    stack.enter_context(self._folder(number, seed).locked())
            except Busy:
                return None
            return stack.pop_all()

    def _try(self, taken: Taken) -> Finding:
        """Train and judge a trial with every seed; one whose loss is not finite has failed."""
        chosen = ", ".join(axis.override(taken.params[axis.key]) for axis in self.axes)
        print(f"trial {taken.number}: {chosen}", flush=True)
        scores: Scores = {}
        for seed in self.question.seeds:
            job = self.job(taken.number, taken.params, seed)
            if job.needs:
                train_or_wait(self.kind, job.needs, self.command)
            try:
                if not self.kind.is_finished(job.experiment):
                    self.kind.train(job.experiment, self.command, locked=True)
                scores[str(seed)] = self._judge(job)
            except UserError as error:
                if DIVERGED not in job.folder.read_facts():
                    raise
                return Finding(taken.number, taken.params, {}, str(error))
        return Finding(taken.number, taken.params, scores)

    def _judge(self, job: Job) -> dict[str, float]:
        run = self.kind.run_type(job.folder.path)
        self.kind.measure(run, self.metric.name, self.question.on, self.cache or self.out / ".statistics")
        scores = final_scores(run, self.metric.name, self.question.on)
        if not all(map(math.isfinite, scores.values())):
            raise UserError(f"{job.folder.path}: {self.metric.name} is not finite")
        return scores

    def job(self, number: int, params: Params, seed: int) -> Job:
        """A trial's run with one seed, and the first task that it begins with, if others begin with the same."""
        experiment = self._experiment(params, seed, self._folder(number, seed).path.name)
        first = self._first_task(experiment)
        if not begins_alike(experiment, first):
            return Job(experiment)
        return Job(dataclasses.replace(experiment, start=first.out), Job(first))

    def _first_task(self, trial: Experiment) -> Experiment:
        """What a trial may begin with: the run that a comparison would share, or else one of the config's own method.

        The method itself may leave other weights in a finished task than it has trained (EWC + SDC writes the heads).
        """
        shared = shared_first_task(self.kind, trial)
        method = FIRST_TASKS[shared] if shared else self.question.config.get("method", {})
        name = "first" if shared is None else {"first": "first-finetune"}.get(shared, shared)
        return first_task(self.kind, self._as_trial(self.question.config), trial.seed, self.out, method, name)

    def _as_trial(self, data: dict[str, Any]) -> dict[str, Any]:
        """A config as a trial trains it: as far as it is judged, without scores in between, and held-out images."""
        known = build(self.kind.experiment_type, copy.deepcopy(data), str(self.source)).task_names
        count = 1 + max(known.index(task) for task in self.question.on)
        return {**data, **self.kind.first_tasks(data, count), **self.kind.unmeasured(data)} | {
            "held_out": self.question.held_out
        }

    def _settings(self, params: Params) -> dict[str, Any]:
        words = [axis.override(params[axis.key]) for axis in self.axes]
        return with_overrides(copy.deepcopy(self.question.config), words)

    def _experiment(self, params: Params, seed: int, name: str) -> Experiment:
        data = self._as_trial(self._settings(params)) | {"seed": seed, "out": str(self.out / name), "title": None}
        return build(self.kind.experiment_type, data, str(self.source))

    def _note(self, finding: Finding) -> None:
        """The trial's file, then the table of all and the best as a recipe."""
        with exclusive(self.out / ".findings.lock"):
            write_finding(self.out, finding)
            findings = self.findings()
            write_table(self.out, self.axes, findings, self.metric)
            if best := best_of(findings, self.metric):
                after = self._settings(best.params)
                method = self._experiment(best.params, self.question.seeds[0], RECIPE).method
                comments = [*self._judged_on(), f"Made by: {self.command}", f"{self._figure(best)}"]
                write_recipe(self.recipe, self.source, self.before, after, f"{method.title}, tuned", comments)
        print(f"trial {finding.number}: {self._figure(finding)}", flush=True)

    def _figure(self, finding: Finding) -> str:
        if finding.value is None:
            return f"failed: {finding.failed}"
        return f"{self.metric.name} {self.metric.single_text(finding.value, finding.spread)}"

    def _judged_on(self) -> list[str]:
        tasks, share = ", ".join(self.question.on), self.question.held_out
        if share:
            return [f"Chosen on {share:.0%} of the training images of {tasks}, which the trials did not train on."]
        return [f"Chosen on {tasks}: scores on {'it are' if len(self.question.on) == 1 else 'them are'} biased."]


def _example(axis: Axis) -> Any:
    return int(axis.low) if axis.whole else axis.low


def begins_alike(experiment: Experiment, first: Experiment) -> bool:
    """Whether the experiment may take over the first task instead of training it: it would train the same."""
    method = experiment.method
    if method.fresh or method.follows_training or len(experiment.task_names) == 1:
        return False
    mine, its = ({k: v for k, v in plain(each.training).items() if _counts(k)} for each in (experiment, first))
    if mine != its or method.own_first_task != first.method.own_first_task or experiment.start is not None:
        return False
    if method.first_rates != first.method.first_rates:
        return False
    try:
        experiment.check_start(first)
    except UserError:
        return False
    return True


def _counts(key: str) -> bool:
    """Whether a key of the training has a say in the first task."""
    return key != "later" and f"training.{key}" not in FREE_KEYS


def final_scores(run: SavedRun[Any], metric: str, tasks: Sequence[str]) -> dict[str, float]:
    """The tasks' scores after the last one; a task that stays as it was learned was measured then."""
    last, found = run.trained[-1], {}
    for line in read_scores(run.folder.scores):
        through = (last, line.tested_on) if run.keeps_tasks else (last,)
        if line.metric == metric and line.tested_on in tasks and line.trained_through in through:
            found[line.tested_on] = line.value
    missing = [task for task in tasks if task not in found]
    if missing:
        raise UserError(f"{run.folder.path}: no {metric} of {', '.join(missing)}; see above why it was not measured")
    return {task: found[task] for task in tasks}
