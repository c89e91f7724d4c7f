"""Reading run folders: score lines, and what training wrote down about the run."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.errors import UserError
from eftgan.files import settled_digest
from eftgan.runfolder import RunFolder
from eftgan.scores import REAL, Score, read_scores

OLD_LABELS = {  # of runs made before training wrote the method's own label into run.json
    "eft": "EFT",
    "finetune": "Finetune",
    "ewc": "EWC",
    "mergan": "MeRGAN-RA",
    "fixed": "FixedRep",
    "lwf": "LwF",
    "si": "SI",
    "mas": "MAS",
    "rwalk": "RWalk",
    "joint": "Joint (bound)",
    "separate": "Separate (bound)",
}


@dataclass(frozen=True)
class Run:
    """One method with one seed over one sequence of tasks."""

    folder: RunFolder
    name: str
    kind: str  # "gan", "classifier", ...
    noun: str | None  # what was trained, in words: "image generator"; none where run.json does not say
    label: str  # the row's name in every table
    seed: int
    tasks: tuple[str, ...]
    scores: tuple[Score, ...]
    info: dict[str, Any]  # run.json as written
    config: str  # config.yaml as written


def load_runs(folders: list[Path]) -> list[Run]:
    """Every run, once however often its folder is given."""
    if not folders:
        raise UserError("no runs to report on; give at least one run folder")
    once = {Path(folder).resolve(): Path(folder) for folder in folders}
    return [run for folder in once.values() for run in read_run(folder)]


def read_run(path: Path) -> list[Run]:
    """The runs in one folder: usually one, more if its score lines are of several methods or seeds."""
    if not path.is_dir():
        raise UserError(f"no run folder {path}; give the folder that training wrote")
    folder = RunFolder(path)
    info, scores = folder.read_facts(), read_scores(folder.scores)
    tasks = tuple(info.get("tasks") or _tasks_of(scores))
    if not tasks or not scores:
        what, command = "scores" if tasks else "tasks", shlex.join(["eftgan", "evaluate", str(path)])
        raise UserError(f"no {what} in {folder.scores}; make them with: {command}")
    groups: dict[tuple[str, int], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.method, score.seed), []).append(score)
    title = _words(info, "title") if len(groups) == 1 else None
    return [
        Run(
            folder=folder,
            name=_words(info, "name") or path.resolve().name,
            kind=_words(info, "kind") or _kind_of(scores),
            noun=_words(info, "noun"),
            label=title or _label(info, method),
            seed=seed,
            tasks=tasks,
            scores=tuple(lines),
            info=info,
            config=folder.config.read_text() if folder.config.is_file() else "",
        )
        for (method, seed), lines in groups.items()
    ]


def command_of(run: Run) -> str:
    """The command that made the run, empty where run.json does not say."""
    command = run.info.get("command") or ""
    return command if isinstance(command, str) else json.dumps(command)


def weight_digests(folder: RunFolder) -> dict[str, str]:
    """sha256 of the run's files of weights, by their path in the folder: what `eftgan info` and sha256sum print."""
    paths = [*([folder.shared] if folder.shared.exists() else []), *folder.task_files()]
    return {path.relative_to(folder.path).as_posix(): settled_digest(path) for path in paths}


def _label(info: dict[str, Any], method: str) -> str:
    """What run.json calls the method, unless the score lines are of another one than it is about."""
    own = _words(info, "label") if info.get("method", method) == method else None
    return own or OLD_LABELS.get(method, method)


def _words(info: dict[str, Any], key: str) -> str | None:
    """A text from run.json; anything else there is ignored."""
    value = info.get(key)
    return value if isinstance(value, str) and value else None


def _tasks_of(scores: list[Score]) -> list[str]:
    return list(dict.fromkeys(s.trained_through for s in scores if s.trained_through != REAL))


def _kind_of(scores: list[Score]) -> str:
    return "classifier" if any("accuracy" in score.metric for score in scores) else "gan"
