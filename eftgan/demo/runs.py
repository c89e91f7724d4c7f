"""What a page is about: one run, or the runs of a comparison."""

from collections import Counter
from pathlib import Path
from typing import Any

from eftgan.errors import UserError
from eftgan.kinds import open_run
from eftgan.runfolder import RunFolder
from eftgan.scores import read_scores
from eftgan.training.run import SavedRun

FIRST = "first-seed"  # how `eftgan compare` begins the names of runs that only train a first task


def open_runs(path: Path) -> dict[str, SavedRun[Any]]:
    """By label, the run of a folder, or the runs in the folders below it; all of one kind, each with a trained task."""
    if RunFolder(path).config.is_file():
        run = open_run(path)
        run.require_trained()
        return {_label(run): run}
    folders = sorted(each.parent for each in path.glob("*/config.yaml") if not each.parent.name.startswith(FIRST))
    runs = [run for run in map(open_run, folders) if run.trained]
    if not runs:
        raise UserError(
            f"{path}: no run there (config.yaml is missing), and no trained ones in the folders below; give what "
            "`eftgan train` or `eftgan compare` wrote"
        )
    kinds = {run.experiment.kind for run in runs}
    if len(kinds) > 1:
        raise UserError(f"{path}: has runs of several kinds ({', '.join(sorted(kinds))}); give one of them")
    return _labelled(runs)


def _label(run: SavedRun[Any]) -> str:
    return run.experiment.title or run.experiment.method.title


def _labelled(runs: list[SavedRun[Any]]) -> dict[str, SavedRun[Any]]:
    """Methods by their names; with the seed where there are several; by folder where that is not enough."""
    seeds = {run.experiment.seed for run in runs}
    labels = [f"{_label(run)}, seed {run.experiment.seed}" if len(seeds) > 1 else _label(run) for run in runs]
    times = Counter(labels)
    return {
        label if times[label] == 1 else f"{label} ({run.folder.path.name})": run
        for label, run in zip(labels, runs, strict=True)
    }


def facts(run: SavedRun[Any]) -> dict[str, str]:
    """What a run is, in a few words each."""
    experiment = run.experiment
    files = [run.folder.shared, *run.folder.task_files()]
    size = sum(path.stat().st_size for path in files if path.exists())
    found = {
        "Method": experiment.method.title,
        "Network": run.describe_network(),
        "Tasks": ", ".join(run.trained),
        "Growth": growth(run),
        "Files": f"{size / 1e6:.1f} MB",
    }
    return {key: value for key, value in found.items() if value}


def growth(run: SavedRun[Any]) -> str:
    """What the last task added, where it was measured."""
    last = run.trained[-1]
    shares = [s.value for s in read_scores(run.folder.scores) if s.metric == "growth" and s.tested_on == last]
    if not shares:
        return ""
    whole = run.experiment.method.fresh and not shares[-1]
    return "a whole network per task" if whole else f"{shares[-1]:.2%} per task"
