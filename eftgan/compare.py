"""Several methods on one sequence: the same first task, the same steps and seeds, one report."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.classifier_experiment import ClassifierExperiment
from eftgan.classifier_runs import train_classifier
from eftgan.config import apply_override, build, overlay, read_yaml
from eftgan.errors import UserError
from eftgan.experiment import GanExperiment
from eftgan.methods import METHODS, Method
from eftgan.reports.write import write_report
from eftgan.train import train_gan


@dataclass(frozen=True)
class Kind:
    """What is trained, by which function, and how a config is cut down to its first task."""

    name: str  # as `serves` of a method calls it
    experiment: type
    train: Callable[[Any, str], Any]
    only_first_task: Callable[[dict], dict]
    usual: tuple[str, ...]  # methods to compare where none are named


GANS = Kind(
    name="gan",
    experiment=GanExperiment,
    train=train_gan,
    only_first_task=lambda data: {"tasks": data["tasks"][:1]},
    usual=("finetune", "ewc", "mergan", "eft", "separate"),
)
CLASSIFIERS = Kind(
    name="classifier",
    experiment=ClassifierExperiment,
    train=train_classifier,
    only_first_task=lambda data: {"sources": [{**data["sources"][0], "take": 1}]},
    usual=("finetune", "ewc", "lwf", "eft", "separate"),
)


def compare_methods(
    config: Path,
    overrides: Sequence[str],
    recipes: Sequence[str] | None,
    seeds: Sequence[int],
    out: Path,
    command: str = "compare_methods",
) -> list[Path]:
    """Train every recipe with every seed, going on where an earlier call stopped; returns the report's files.

    The first task is trained once per seed; methods that would train it alike take it over from there.
    `overrides` hold for all of them. `command` is what the runs say they were made by.
    """
    _refuse_choice_of_method(overrides)
    data = _with_overrides(read_yaml(config), overrides)
    kind = CLASSIFIERS if "sources" in data else GANS
    recipes, seeds = dict.fromkeys(recipes or kind.usual), dict.fromkeys(seeds)
    experiments = [_experiment(kind, config, overrides, recipe, seed, out) for seed in seeds for recipe in recipes]
    runs = []
    for experiment in experiments:
        if experiment.start is not None:
            kind.train(_first_task(kind, data, experiment), command)
        print(experiment.out)
        kind.train(experiment, command)
        runs.append(Path(experiment.out))
    return write_report(runs, out / "report.html")


def _refuse_choice_of_method(overrides: Sequence[str]) -> None:
    for word in overrides:
        if word.partition("=")[0].strip() in ("method", "method.name"):
            raise UserError(
                f"{word!r}: --methods says which are compared; set a key of all by method.KEY=value, or write a recipe "
                "(a YAML in the folder that is named like the config)"
            )


def _with_overrides(data: dict, overrides: Sequence[str]) -> dict:
    for word in overrides:
        apply_override(data, word)
    return data


def _experiment(kind: Kind, config: Path, overrides: Sequence[str], recipe: str, seed: int, out: Path) -> Any:
    """The experiment of one recipe: its YAML in the folder that is named like the config, or just a method's name."""
    folder = config.with_suffix("")
    path = folder / f"{recipe}.yaml"
    if not path.is_file() and recipe not in METHODS:
        known = sorted({*METHODS, *(found.stem for found in folder.glob("*.yaml"))})
        raise UserError(f"no method or recipe {recipe!r}; there are: {', '.join(known)}")
    source = path if path.is_file() else config
    whole = read_yaml(source)
    if source is config:
        whole["method"] = overlay(whole.get("method"), {"name": recipe})
    whole = _with_overrides(whole, overrides)
    whole |= {"seed": seed, "out": str(out / f"{recipe}-seed{seed}")}
    whole["title"] = None if recipe in METHODS else whole.get("title") or recipe
    experiment = build(kind.experiment, whole, str(source))
    if kind.name not in experiment.method.serves:  # now, not after the methods before it have trained
        raise UserError(f"--methods: {recipe} is not for a {kind.name}; leave it out")
    if not _shares_first_task(kind, experiment.method):
        return experiment
    return dataclasses.replace(experiment, start=str(out / f"first-seed{seed}"))


def _shares_first_task(kind: Kind, method: Method) -> bool:
    """Whether the method would train the first task as fine-tuning does, and need not see it trained.

    All GAN methods have the same networks; a classifier's tasks have parts of their own with some methods only.
    """
    alike = kind is GANS or not method.owns
    return alike and not (method.fresh or method.follows_training or method.own_first_task)


def _first_task(kind: Kind, data: dict, experiment: Any) -> Any:
    """The one-task run that an experiment starts from."""
    alone = {"method": {"name": "finetune"}, "seed": experiment.seed, "out": experiment.start, "title": None}
    return build(kind.experiment, {**data, **kind.only_first_task(data), **alone})
