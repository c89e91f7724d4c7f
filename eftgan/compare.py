"""Several methods on one sequence: the same first task, the same steps and seeds, one report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.classifier_experiment import ClassifierExperiment
from eftgan.classifier_runs import train_classifier
from eftgan.config import apply_override, build, read_yaml
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
    config: Path, overrides: Sequence[str], recipes: Sequence[str] | None, seeds: Sequence[int], out: Path
) -> list[Path]:
    """Train every recipe with every seed, going on where an earlier call stopped; returns the report's files.

    The first task is trained once per seed; methods that would train it alike take it over from there.
    """
    data = _with_overrides(config, overrides)
    kind = CLASSIFIERS if "sources" in data else GANS
    recipes = recipes or kind.usual
    experiments = [_experiment(kind, config, overrides, recipe, seed, out) for seed in seeds for recipe in recipes]
    runs = []
    for experiment in experiments:
        if experiment.start is not None:
            first = _first_task(kind, data, experiment)
            kind.train(first, _command(config, first))
        print(experiment.out)
        kind.train(experiment, _command(config, experiment))
        runs.append(Path(experiment.out))
    return write_report(runs, out / "report.html")


def _with_overrides(path: Path, overrides: Sequence[str]) -> dict:
    data = read_yaml(path)
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
    whole = _with_overrides(source, overrides)
    if source is config:
        whole["method"] = {"name": recipe}
    whole |= {"seed": seed, "out": str(out / f"{recipe}-seed{seed}")}
    whole["title"] = None if recipe in METHODS else whole.get("title") or recipe
    method = METHODS[whole["method"]["name"]]
    if kind.name not in method.serves:  # now, not after the methods before it have trained
        raise UserError(f"--methods: {recipe} is not for a {kind.name}; leave it out")
    if _shares_first_task(kind, method):
        whole["start"] = str(out / f"first-seed{seed}")
    return build(kind.experiment, whole, str(source))


def _shares_first_task(kind: Kind, method: type[Method]) -> bool:
    """Whether the method would train the first task as fine-tuning does, and need not see it trained.

    All GAN methods have the same networks; a classifier's tasks have parts of their own with some methods only.
    """
    alike = kind is GANS or not method.owns
    return alike and not method.fresh and not method.follows_training


def _first_task(kind: Kind, data: dict, experiment: Any) -> Any:
    """The one-task run that an experiment starts from."""
    alone = {"method": {"name": "finetune"}, "seed": experiment.seed, "out": experiment.start, "title": None}
    return build(kind.experiment, {**data, **kind.only_first_task(data), **alone})


def _command(config: Path, experiment: Any) -> str:
    name, method = Path(experiment.out).name, experiment.title or experiment.method.name
    return f"eftgan compare {config} --methods {method} --seeds {experiment.seed}  (run {name})"
