"""Several methods on one sequence: the same first task, the same steps and seeds, one report."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eftgan.config import apply_override, build, overlay, read_yaml
from eftgan.errors import UserError
from eftgan.kinds import kind_of_config
from eftgan.methods import METHODS
from eftgan.reports.write import write_report
from eftgan.training.kind import Kind

AnyKind = Kind[Any, Any, Any]


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
    kind = kind_of_config(data, str(config))
    recipes, seeds = dict.fromkeys(recipes or kind.usual_methods), dict.fromkeys(seeds)
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


def _experiment(kind: AnyKind, config: Path, overrides: Sequence[str], recipe: str, seed: int, out: Path) -> Any:
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
    experiment = build(kind.experiment_type, whole, str(source))
    method = experiment.method
    if method.fresh or method.follows_training or method.own_first_task or not kind.shares_first_task(experiment):
        return experiment
    return dataclasses.replace(experiment, start=str(out / f"first-seed{seed}"))


def _first_task(kind: AnyKind, data: dict, experiment: Any) -> Any:
    """The one-task run that an experiment starts from."""
    alone = {"method": {"name": "finetune"}, "seed": experiment.seed, "out": experiment.start, "title": None}
    return build(kind.experiment_type, {**data, **kind.only_first_task(data), **alone})
