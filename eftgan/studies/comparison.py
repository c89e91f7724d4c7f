"""A comparison: several methods on one sequence, with the same first task, steps and seeds, and one report."""

import dataclasses
import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.config import apply_override, build, overlay, read_yaml
from eftgan.data.processes import Processes
from eftgan.errors import UserError
from eftgan.files import exclusive, file_digest, remove_leftovers, write_json
from eftgan.kinds import kind_of_config
from eftgan.methods import METHODS
from eftgan.reports import write
from eftgan.runfolder import RunFolder
from eftgan.studies.sharing import AnyKind, Job, share_jobs
from eftgan.training.experiment import Experiment

NEUTRAL = {"first_transforms": "neutral"}  # what `own_first_task` says where a first task fits every kind of adapters
Change = Callable[[AnyKind, dict[str, Any]], dict[str, Any]]  # of a config's mapping, given its kind
FIRST_TASKS = {"first": "finetune", "first-neutral": {"name": "eft", **NEUTRAL}}  # their methods, by the runs' names
NOT_OF_FIRST_TASKS = ("auxiliary", "inference")  # keys that no such run needs, and that some methods have to refuse


@dataclass(frozen=True)
class Comparison:
    """What is to be trained: by seed, the first task and the runs that begin with it."""

    kind: AnyKind
    out: Path
    jobs: list[Job]

    @property
    def firsts(self) -> dict[str, Job]:
        """The first tasks that runs share."""
        return {job.needs.name: job.needs for job in self.jobs if job.needs}

    @property
    def runs(self) -> list[Path]:
        return [job.folder.path for job in self.jobs]

    @property
    def all_jobs(self) -> list[Job]:
        """First tasks stand first: others wait for them."""
        return [*self.firsts.values(), *self.jobs]

    @property
    def page(self) -> Path:
        return self.out / "report.html"

    def train(self, command: str) -> None:
        """Train all, one after the other, in this process (or in all those that were launched together)."""
        for job in self.jobs:
            if job.needs:
                self.kind.train(job.needs.experiment, command)
            if Processes.present().is_first:
                print(job.folder.path, flush=True)
            self.kind.train(job.experiment, command)

    def work(self, command: str, only: str | None = None) -> None:
        """Train what no other process trains, until all is finished; `only`: one run, and what it needs."""
        self._check_data()
        jobs = self.all_jobs
        if only is not None:
            chosen = next((job for job in jobs if job.name == only), None)
            if chosen is None:
                raise UserError(f"--only {only}: no such run; there are: {', '.join(job.name for job in jobs)}")
            jobs = [*([chosen.needs] if chosen.needs else []), chosen]
        share_jobs(self.kind, jobs, command)

    def _check_data(self) -> None:
        """Open what the first run will read: what is missing shows before anything is written."""
        job = self.jobs[0]
        if not any(each.folder.config.exists() for each in self.all_jobs):
            for each in (job.needs, job):
                if each:
                    self.kind.open_tasks(each.experiment, 1)

    @property
    def unfinished(self) -> list[str]:
        return [job.name for job in self.all_jobs if not self.kind.is_finished(job.experiment)]

    def report(self) -> list[Path]:
        """The report of all runs, and of those that earlier calls compared on this sequence."""
        remove_leftovers(self.out)  # of a call that was killed while it wrote them
        return write.write_report([*_others(self.out, self.runs), *self.runs], self.page)

    def report_once(self) -> list[Path]:
        """The same where several processes end together: one writes, the others find it written."""
        with exclusive(self.out / ".report.lock"):
            runs = [*_others(self.out, self.runs), *self.runs]
            made_of = {run.name: [file_digest(path) for path in _reported(run)] for run in runs}
            record = self.out / ".report.json"
            if self.page.is_file() and record.is_file() and json.loads(record.read_text()) == made_of:
                return [self.page]
            paths = self.report()
            write_json(record, made_of)
            return paths


def _reported(run: Path) -> list[Path]:
    folder = RunFolder(run)
    return [path for path in (folder.facts, folder.scores) if path.exists()]


def plan_comparison(
    config: Path,
    overrides: Sequence[str],
    recipes: Sequence[str] | None,
    seeds: Sequence[int],
    out: Path,
    change: Change = lambda kind, data: data,
) -> Comparison:
    """Every recipe with every seed. Methods that would train the first task alike begin with one run of it a seed.

    `overrides` hold for all of them; `change` is asked for every recipe's mapping, and for that of the first tasks.
    """
    refuse_choice_of_method(overrides)
    data = with_overrides(read_yaml(config), overrides)
    kind = kind_of_config(data, str(config))
    data = change(kind, data)
    names = dict.fromkeys(recipes or kind.usual_methods)
    _refuse_equal_names(names)
    jobs = []
    for seed in dict.fromkeys(seeds):
        firsts: dict[str, Job] = {}
        for name in names:
            whole = change(kind, recipe_data(kind, config, overrides, name))
            own = {"seed": seed, "out": str(out / f"{_name(name)}-seed{seed}")}
            experiment, first = build(kind.experiment_type, whole | own, str(_source(config, name))), None
            experiment.check_given(overrides)
            if shared := shared_first_task(kind, experiment):
                first = firsts.setdefault(shared, Job(first_task(kind, data, seed, out, FIRST_TASKS[shared], shared)))
                experiment = dataclasses.replace(experiment, start=first.experiment.out)
            jobs.append(Job(experiment, first))
    return Comparison(kind, out, jobs)


def compare_methods(
    config: Path,
    overrides: Sequence[str],
    recipes: Sequence[str] | None,
    seeds: Sequence[int],
    out: Path,
    command: str = "compare_methods",
) -> list[Path]:
    """Train every recipe with every seed, going on where an earlier call stopped; returns the report's files.

    `command` is what the runs say they were made by.
    """
    comparison = plan_comparison(config, overrides, recipes, seeds, out)
    comparison.train(command)
    return comparison.report()


def _others(out: Path, runs: Sequence[Path]) -> list[Path]:
    """What earlier calls compared in the same folder, on the same sequence: their rows stay in the report."""

    def sequence(run: Path) -> tuple[Any, Any]:
        facts = RunFolder(run).read_facts()
        return facts.get("kind"), facts.get("tasks")

    found = (RunFolder(path.parent) for path in sorted(out.glob("*-seed*/config.yaml")))
    trained = [each.path for each in found if each.scores.is_file() and not each.path.name.startswith("first-")]
    return [path for path in trained if path not in runs and sequence(path) == sequence(runs[0])]


def refuse_choice_of_method(overrides: Sequence[str]) -> None:
    """Refuse words that would give all recipes one method."""
    for word in overrides:
        if word.partition("=")[0].strip() in ("method", "method.name"):
            raise UserError(
                f"{word!r}: --methods says which are compared; set a key of all by method.KEY=value, or write a recipe "
                "(a YAML in the folder that is named like the config)"
            )


def _refuse_equal_names(recipes: Sequence[str] | dict[str, None]) -> None:
    """Recipes given by their files are named by them, and so are their runs."""
    known: dict[str, str] = {}
    for recipe in recipes:
        other = known.setdefault(_name(recipe), recipe)
        if other != recipe:
            raise UserError(f"--methods: {other} and {recipe} would both be called {_name(recipe)}; rename one")


def _name(recipe: str) -> str:
    return Path(recipe).stem if _is_file(recipe) else recipe


def _is_file(recipe: str) -> bool:
    return Path(recipe).suffix == ".yaml" and Path(recipe).is_file()


def with_overrides(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    for word in overrides:
        apply_override(data, word)
    return data


def recipe_data(kind: AnyKind, config: Path, overrides: Sequence[str], recipe: str) -> dict[str, Any]:
    """One recipe's mapping: a file, its YAML in the folder that is named like the config, or just a method's name."""
    path = recipe_file(config, recipe)
    if not path.is_file() and recipe not in METHODS:
        raise _unknown(recipe, [name for name in METHODS if METHODS[name].suits(kind.name)], path.parent)
    source, name = _source(config, recipe), _name(recipe)
    whole = read_yaml(source)
    own_title = whole.get("title") if whole.get("title") != read_yaml(config).get("title") else None
    if source is config:
        whole["method"] = overlay(whole.get("method"), {"name": recipe})
    whole = with_overrides(whole, overrides)
    whole["title"] = own_title if name in METHODS else whole.get("title") or name
    return whole


def _source(config: Path, recipe: str) -> Path:
    """The file that a recipe is read from: the config itself, for just a method's name."""
    path = recipe_file(config, recipe)
    return path if path.is_file() else config


def recipe_file(config: Path, recipe: str) -> Path:
    """Where a recipe of a config stands, if it is there."""
    return Path(recipe) if _is_file(recipe) else config.with_suffix("") / f"{recipe}.yaml"


def shared_first_task(kind: AnyKind, experiment: Experiment) -> str | None:
    """Which of FIRST_TASKS an experiment can begin with; none where it trains its own."""
    method = experiment.method
    if method.fresh or method.follows_training:
        return None
    if method.own_first_task == NEUTRAL:
        return "first-neutral"
    return "first" if not method.own_first_task and kind.shares_first_task(experiment) else None


def _unknown(recipe: str, methods: Sequence[str], folder: Path) -> UserError:
    """What to answer to a name that is neither a method of this kind nor a recipe of the config."""
    known = list(dict.fromkeys([*methods, *sorted(found.stem for found in folder.glob("*.yaml"))]))
    near = difflib.get_close_matches(recipe, known, 1, 0.5)
    hint = f"did you mean {near[0]}? There" if near else "there"
    return UserError(f"no method or recipe {recipe!r}; {hint} are: {', '.join(known)}")


def first_task(
    kind: AnyKind, data: dict[str, Any], seed: int, out: Path, method: Any = "finetune", name: str = "first"
) -> Experiment:
    """The one-task run that others start from."""
    if method in FIRST_TASKS.values():
        data = {key: value for key, value in data.items() if key not in NOT_OF_FIRST_TASKS}
    alone = {"method": method, "seed": seed, "out": str(out / f"{name}-seed{seed}"), "title": None}
    return build(kind.experiment_type, {**data, **kind.first_tasks(data, 1), **alone})
