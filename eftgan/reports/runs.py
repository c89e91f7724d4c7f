"""Reading run folders: score lines, and what the trainer wrote down about the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.runfolder import RunFolder
from eftgan.scores import REAL, Score, read_scores

METHOD_NAMES = {
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

    folder: Path
    name: str
    kind: str  # "gan" or "classifier"
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
    return [run for folder in once.values() for run in load_run(folder)]


def load_run(folder: Path) -> list[Run]:
    """The runs in one folder: usually one, more if its score lines are of several methods or seeds."""
    if not folder.is_dir():
        raise UserError(f"no run folder {folder}; give the folder that training wrote")
    info = RunFolder(folder).read_facts()
    scores = read_scores(folder / "scores.jsonl")
    tasks = tuple(info.get("tasks") or _tasks_of(scores))
    if not tasks or not scores:
        what = "scores" if tasks else "tasks"
        raise UserError(f"no {what} in {folder / 'scores.jsonl'}; make them with: eftgan evaluate {folder}")
    config = folder / "config.yaml"
    groups: dict[tuple[str, int], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.method, score.seed), []).append(score)
    return [
        Run(
            folder=folder,
            name=info.get("name") or folder.resolve().name,
            kind=info.get("kind") or _kind_of(scores),
            label=(info.get("title") if len(groups) == 1 else None) or METHOD_NAMES.get(method, method),
            seed=seed,
            tasks=tasks,
            scores=tuple(lines),
            info=info,
            config=config.read_text() if config.is_file() else "",
        )
        for (method, seed), lines in groups.items()
    ]


def weight_digests(folder: Path) -> dict[str, str]:
    """sha256 of the run's files of weights, by their path in the folder: what `eftgan info` and sha256sum print."""
    paths = [*folder.glob("shared.safetensors"), *sorted(folder.glob("tasks/*.safetensors"))]
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}


def _tasks_of(scores: list[Score]) -> list[str]:
    return list(dict.fromkeys(s.trained_through for s in scores if s.trained_through != REAL))


def _kind_of(scores: list[Score]) -> str:
    return "classifier" if any("accuracy" in score.metric for score in scores) else "gan"
