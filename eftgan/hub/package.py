"""What of a run is shared: config, weights, classes, scores and a model card; no data, no places on this machine."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eftgan.config import read_yaml, without_places
from eftgan.errors import UserError
from eftgan.files import write_bytes
from eftgan.hub.card import Shown, model_card
from eftgan.hub.remote import HubRepo
from eftgan.runfolder import RunFolder
from eftgan.scores import as_lines, read_scores

Files = Mapping[str, bytes | Path]  # by their names in the repository: content, or the file that has it

ALWAYS = ("config.yaml", "run.json", "classes.json", "scores.jsonl", "shared.safetensors")  # what any task needs
WEIGHTS = "tasks/*.safetensors"
CARD, PICTURE = "README.md", "samples.png"
# Of run.json: the rest says how and where the run was made here (command, places of data, resume states).
KEPT_FACTS = ("kind", "noun", "method", "label", "seed", "tasks", "title", "versions", "nearest")


@dataclass(frozen=True)
class Sharing:
    """A run as it is to be shared."""

    folder: RunFolder
    config_type: type  # of the experiment, whose keys say which of them are places
    weights: list[Path]  # the task files that are needed
    shown: Shown  # what the card tells
    picture: bytes | None = None  # a PNG of samples

    def files(self, name: str, licence: str | None = None) -> Files:
        """The files to share under a name (USER/NAME, or a folder's)."""
        folder = self.folder
        own = name.rpartition("/")[2]
        scores = [dataclasses.replace(score, run=own) for score in read_scores(folder.scores)]
        texts = {
            folder.config.name: yaml.safe_dump(self._config() | {"out": own}, sort_keys=False, allow_unicode=True),
            folder.facts.name: json.dumps(_facts(folder) | {"name": own}, indent=1, sort_keys=True) + "\n",
            folder.scores.name: as_lines(scores),
            CARD: model_card(self.shown, name, licence, folder, PICTURE if self.picture else None),
        }
        if folder.classes.is_file():
            texts[folder.classes.name] = folder.classes.read_text()
        files: dict[str, bytes | Path] = {path: text.encode() for path, text in texts.items()}
        if self.picture:
            files[PICTURE] = self.picture
        for path in (*([folder.shared] if folder.shared.exists() else []), *self.weights):
            files[path.relative_to(folder.path).as_posix()] = path
        return files

    def _config(self) -> dict[str, Any]:
        return without_places(self.config_type, read_yaml(self.folder.config))


def fetch_description(repo: HubRepo) -> Path:
    """The folder of a run on the Hub with all but the files of its tasks."""
    folder = repo.fetch(ALWAYS)
    if not RunFolder(folder).config.is_file():
        raise UserError(f"{repo.name}: not a run of eftgan (it has no config.yaml)")
    return folder


def write_files(files: Files, folder: Path, own: Path) -> None:
    """Write what is shared into a folder of its own, new or empty; `own` is the run's."""
    if folder.resolve() == own.resolve():
        raise UserError(f"{folder} is the run itself; name another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and not empty; name a new folder")
    for path, content in files.items():
        write_bytes(folder / path, content if isinstance(content, bytes) else content.read_bytes())


def _facts(folder: RunFolder) -> dict[str, Any]:
    facts = folder.read_facts()
    kept = {key: facts[key] for key in KEPT_FACTS if key in facts}
    records = {name: {"digest": record.get("digest")} for name, record in folder.data_records().items()}
    return kept | {"data": {name: record for name, record in records.items() if record["digest"]}}
