"""Several methods on one sequence: the same first task, the same steps and seeds, one report."""

from collections.abc import Sequence
from pathlib import Path

from eftgan.config import apply_override, build, overlay, read_yaml
from eftgan.errors import UserError
from eftgan.experiment import GanExperiment
from eftgan.methods import METHODS
from eftgan.reports.write import write_report
from eftgan.train import train_gan


def compare_methods(
    config: Path, overrides: Sequence[str], recipes: Sequence[str], seeds: Sequence[int], out: Path
) -> list[Path]:
    """Train every recipe with every seed, going on where an earlier call stopped; returns the report's files.

    The first task is trained once per seed; methods that would train it alike take it over from there.
    """
    data = read_yaml(config)
    for word in overrides:
        apply_override(data, word)
    experiments = [_experiment(config, data, recipe, seed, out) for seed in seeds for recipe in recipes]
    runs = []
    for experiment in experiments:
        first = _first_task(data, experiment, out)
        if first is not None:
            train_gan(first, _command(config, first))
        print(experiment.out)
        train_gan(experiment, _command(config, experiment))
        runs.append(Path(experiment.out))
    return write_report(runs, out / "report.html")


def _experiment(config: Path, data: dict, recipe: str, seed: int, out: Path) -> GanExperiment:
    """The experiment of one recipe: a YAML beside the config, or just a method's name."""
    path = config.parent / "recipes" / f"{recipe}.yaml"
    if path.is_file():
        above = read_yaml(path)
    elif recipe in METHODS:
        above = {"method": {"name": recipe}}
    else:
        known = sorted({*METHODS, *(found.stem for found in path.parent.glob("*.yaml"))})
        raise UserError(f"no method or recipe {recipe!r}; there are: {', '.join(known)}")
    whole = overlay(data, above) | {"seed": seed, "out": str(out / f"{recipe}-seed{seed}")}
    whole["title"] = None if recipe in METHODS else recipe
    if not METHODS[whole["method"]["name"]].fresh:
        whole["start"] = str(out / f"first-seed{seed}")
    return build(GanExperiment, whole, str(path if path.is_file() else config))


def _first_task(data: dict, experiment: GanExperiment, out: Path) -> GanExperiment | None:
    """The one-task run that an experiment starts from."""
    if experiment.start is None:
        return None
    alone = {
        **data, "tasks": data["tasks"][:1], "method": {"name": "finetune"}, "seed": experiment.seed,
        "out": experiment.start, "title": None,
    }  # fmt: skip
    return build(GanExperiment, alone)


def _command(config: Path, experiment: GanExperiment) -> str:
    name, method = Path(experiment.out).name, experiment.title or experiment.method.name
    return f"eftgan compare {config} --methods {method} --seeds {experiment.seed}  (run {name})"
