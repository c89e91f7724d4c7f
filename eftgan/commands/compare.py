"""`eftgan compare`: several methods on one sequence, with the same first task, steps and seeds, and one report."""

import argparse
import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eftgan.commands import exit_stopped
from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.training.kind import Kind

HELP = "Train several methods on one sequence; one report."
EXAMPLES = """\
eftgan compare gan/shapes --methods finetune,ewc,mergan,eft,eft-plus --seeds 0,1 --out runs/compare
eftgan compare classifier/shapes --methods finetune,lwf,ewc,eft --out runs/compare-classes
eftgan compare my.yaml --methods finetune,eft training.steps=2000
eftgan compare shapes_ablations --methods eft,no_transfer,parallel --seeds 0,1,2"""


NEUTRAL = {"first_transforms": "neutral"}  # what `own_first_task` says where a first task fits every kind of adapters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="X.yaml, or a name such as gan/shapes; recipes are the files X/RECIPE.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the config")
    parser.add_argument("--methods", help="methods or recipes, with commas (default: the usual ones of the kind)")
    parser.add_argument("--seeds", default="0", help="for example 0,1,2")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="folder of the runs and the report")


def more_help(words: Sequence[str]) -> str:
    """What is compared where no methods are named."""
    from eftgan.kinds import KINDS, load_kind

    usual = [f"  {kind}: {', '.join(load_kind(kind).usual_methods)}" for kind in KINDS]
    return "\n".join(["the usual methods:", *usual])


def run(args: argparse.Namespace) -> None:
    """Run what is not finished yet, then write one report."""
    methods, seeds = _methods(args.methods), _seeds(args.seeds)
    from eftgan.kinds import find_config

    config = find_config(args.config)
    from eftgan.training.stopping import Stopped

    try:
        paths = compare_methods(config, args.overrides, methods, seeds, args.out, args.command_line)
    except Stopped as stopped:
        exit_stopped(str(stopped), args.command_line, stopped.signal)
    print(*paths, sep="\n")


def _methods(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",")]
    if names is not None and not all(names):
        raise UserError(f"--methods {text!r}: give names with commas between them, for example finetune,eft")
    return names


def _seeds(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        raise UserError(f"--seeds {text[:60]}: give whole numbers, for example 0,1,2")
    return [int(word) for word in words]


def compare_methods(
    config: Path,
    overrides: Sequence[str],
    recipes: Sequence[str] | None,
    seeds: Sequence[int],
    out: Path,
    command: str = "compare_methods",
) -> list[Path]:
    """Train every recipe with every seed, going on where an earlier call stopped; returns the report's files.

    The first task is trained once per seed; methods that would train it alike take it over from there. Those that
    leave their first transforms neutral share one of their own.
    `overrides` hold for all of them. `command` is what the runs say they were made by.
    """
    from eftgan.config import read_yaml
    from eftgan.kinds import kind_of_config
    from eftgan.reports.write import write_report

    _refuse_choice_of_method(overrides)
    data = _with_overrides(read_yaml(config), overrides)
    kind = kind_of_config(data, str(config))
    experiments = [
        _experiment(kind, config, overrides, recipe, seed, out)
        for seed in dict.fromkeys(seeds)
        for recipe in dict.fromkeys(recipes or kind.usual_methods)
    ]
    runs = []
    for experiment in experiments:
        if experiment.start is not None:
            kind.train(_first_task(kind, data, experiment), command)
        print(experiment.out)
        kind.train(experiment, command)
        runs.append(Path(experiment.out))
    return write_report([*_others(out, runs), *runs], out / "report.html")


def _others(out: Path, runs: Sequence[Path]) -> list[Path]:
    """What earlier calls compared in the same folder, on the same sequence: their rows stay in the report."""
    from eftgan.runfolder import RunFolder

    def sequence(run: Path) -> tuple[Any, Any]:
        facts = RunFolder(run).read_facts()
        return facts.get("kind"), facts.get("tasks")

    found = (RunFolder(path.parent) for path in sorted(out.glob("*-seed*/config.yaml")))
    trained = [each.path for each in found if each.scores.is_file() and not each.path.name.startswith("first-")]
    return [path for path in trained if path not in runs and sequence(path) == sequence(runs[0])]


def _refuse_choice_of_method(overrides: Sequence[str]) -> None:
    for word in overrides:
        if word.partition("=")[0].strip() in ("method", "method.name"):
            raise UserError(
                f"{word!r}: --methods says which are compared; set a key of all by method.KEY=value, or write a recipe "
                "(a YAML in the folder that is named like the config)"
            )


def _with_overrides(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    from eftgan.config import apply_override

    for word in overrides:
        apply_override(data, word)
    return data


def _experiment(
    kind: "Kind[Any, Any, Any]", config: Path, overrides: Sequence[str], recipe: str, seed: int, out: Path
) -> Any:
    """The experiment of one recipe: its YAML in the folder that is named like the config, or just a method's name."""
    from eftgan.config import build, overlay, read_yaml
    from eftgan.methods import METHODS

    path = config.with_suffix("") / f"{recipe}.yaml"
    if not path.is_file() and recipe not in METHODS:
        raise _unknown(recipe, [name for name in METHODS if METHODS[name].suits(kind.name)], path.parent)
    source = path if path.is_file() else config
    whole = read_yaml(source)
    if source is config:
        whole["method"] = overlay(whole.get("method"), {"name": recipe})
    whole = _with_overrides(whole, overrides)
    whole |= {"seed": seed, "out": str(out / f"{recipe}-seed{seed}")}
    whole["title"] = None if recipe in METHODS else whole.get("title") or recipe
    experiment = build(kind.experiment_type, whole, str(source))
    method = experiment.method
    if method.fresh or method.follows_training:
        return experiment
    if method.own_first_task == NEUTRAL:
        return dataclasses.replace(experiment, start=str(out / f"first-neutral-seed{seed}"))
    if method.own_first_task or not kind.shares_first_task(experiment):
        return experiment
    return dataclasses.replace(experiment, start=str(out / f"first-seed{seed}"))


def _unknown(recipe: str, methods: Sequence[str], folder: Path) -> UserError:
    """What to answer to a name that is neither a method of this kind nor a recipe of the config."""
    known = list(dict.fromkeys([*methods, *sorted(found.stem for found in folder.glob("*.yaml"))]))
    near = difflib.get_close_matches(recipe, known, 1, 0.5)
    hint = f"did you mean {near[0]}? There" if near else "there"
    return UserError(f"no method or recipe {recipe!r}; {hint} are: {', '.join(known)}")


def _first_task(kind: "Kind[Any, Any, Any]", data: dict[str, Any], experiment: Any) -> Any:
    """The one-task run that an experiment starts from."""
    from eftgan.config import build

    neutral = experiment.method.own_first_task == NEUTRAL
    method = {"name": "eft", **NEUTRAL} if neutral else {"name": "finetune"}
    alone = {"method": method, "seed": experiment.seed, "out": experiment.start, "title": None}
    return build(kind.experiment_type, {**data, **kind.only_first_task(data), **alone})
