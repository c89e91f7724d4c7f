"""Labels of the rows: runs of one method share one only if they are seeds of one experiment."""

import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from eftgan.config import FREE_KEYS, parse_yaml
from eftgan.names import AUTO
from eftgan.reports.runs import Run

RULE = "inference"  # free, since nothing is trained anew for another rule; but it makes other scores
NOT_COMPARED = ("seed", "start", *(key for key in FREE_KEYS if key != RULE))  # may differ between runs of one row


def disambiguate_labels(runs: list[Run]) -> list[Run]:
    """The runs, labelled so that only seeds of one experiment share a label: `EFT (wide)` and `EFT (narrow)`."""
    labels = {id(run): run.label for run in runs}
    for row in _grouped(runs, lambda run: (run.label, run.kind, run.tasks)):
        experiments = [part for same in _grouped(row, _compared) for part in _without_repeated_seeds(same)]
        if len(experiments) > 1:
            for name, experiment in zip(_names(experiments), experiments, strict=True):
                labels |= {id(run): f"{run.label} ({name})" for run in experiment}
    return [replace(run, label=labels[id(run)]) for run in runs]


def _grouped(runs: Iterable[Run], key: Callable[[Run], Hashable]) -> list[list[Run]]:
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def _compared(run: Run) -> str:
    """The part of a run's config that determines its results, as one text; empty where the run has no config."""
    config = parse_yaml(run.config, str(run.folder.config))
    for key in NOT_COMPARED:
        *way, last = key.split(".")
        place: Any = config
        for name in way:
            place = place.get(name) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.pop(last, None)
    if isinstance(config, dict) and config.get(RULE) == AUTO:  # as in configs from before there was a choice
        del config[RULE]
    return json.dumps(config, sort_keys=True, default=str) if config else ""


def _without_repeated_seeds(runs: list[Run]) -> list[list[Run]]:
    """One experiment that was run several times, as groups that lie together and have every seed once."""
    ways: list[Callable[[Run], Hashable]] = [lambda run: "all", lambda run: _path(run).parent, _place, _path]
    for together in ways:
        parts = _grouped(runs, together)
        if all(len({run.seed for run in part}) == len(part) for part in parts):
            break
    return parts


def _path(run: Run) -> Path:
    return run.folder.path.resolve()


def _place(run: Run) -> Path:
    """The run's folder without the seed that `eftgan compare` puts at the end of its name."""
    folder = _path(run)
    return folder.parent / (folder.name.removesuffix(f"-seed{run.seed}") or folder.name)


def _names(experiments: list[list[Run]]) -> list[str]:
    """The shortest paths that differ, of each experiment's first run; dots where its other seeds lie elsewhere."""
    paths = [[_place(run).parts for run in runs] for runs in experiments]
    if len({first for first, *_ in paths}) < len(paths):
        paths = [[_path(run).parts for run in runs] for runs in experiments]
    while len({first[-1] for first, *_ in paths}) == 1:
        paths = [[path[:-1] for path in each] for each in paths]
    length = 1
    while len({first[-length:] for first, *_ in paths}) < len(paths):
        length += 1
    return ["/".join(each[0][-length:]) + " …" * (len(set(each)) > 1) for each in paths]
