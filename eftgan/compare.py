"""Several methods on one sequence: the same first task, the same steps and seeds, one report."""

from collections.abc import Sequence
from pathlib import Path

from eftgan.config import apply_override, build, read_yaml
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
    data = _with_overrides(config, overrides)
    experiments = [_experiment(config, overrides, recipe, seed, out) for seed in seeds for recipe in recipes]
    runs = []
    for experiment in experiments:
        first = _first_task(data, experiment, out)
        if first is not None:
            train_gan(first, _command(config, first))
        print(experiment.out)
        train_gan(experiment, _command(config, experiment))
        runs.append(Path(experiment.out))
    return write_report(runs, out / "report.html")


def _with_overrides(path: Path, overrides: Sequence[str]) -> dict:
    data = read_yaml(path)
    for word in overrides:
        apply_override(data, word)
    return data


def _experiment(config: Path, overrides: Sequence[str], recipe: str, seed: int, out: Path) -> GanExperiment:
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
    whole["title"] = None if recipe in METHODS else recipe
    if not METHODS[whole["method"]["name"]].fresh:
        whole["start"] = str(out / f"first-seed{seed}")
    return build(GanExperiment, whole, str(source))


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
