"""The kinds of experiments: a new one is a folder beside `gan/` and `classifier/`, and a line here."""

import importlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eftgan.config import read_yaml
from eftgan.errors import UserError
from eftgan.runfolder import RunFolder

if TYPE_CHECKING:
    from eftgan.training.kind import Kind
    from eftgan.training.run import SavedRun

# Name -> where its Kind stands; imported when it is used, since that takes seconds.
KINDS: dict[str, str] = {"gan": "eftgan.gan.kind:GAN", "classifier": "eftgan.classifier.kind:CLASSIFIERS"}


def load_kind(name: str) -> "Kind[Any, Any, Any]":
    """A kind by its name."""
    module, _, attribute = KINDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def kind_of_config(data: Mapping[str, Any], where: str) -> "Kind[Any, Any, Any]":
    """The kind whose sequence of tasks the config has."""
    kinds = [load_kind(name) for name in KINDS]
    found = next((kind for kind in kinds if kind.sequence_key in data), None)
    if found is None:
        keys = " or ".join(f"{kind.sequence_key}: (a {kind.name})" for kind in kinds)
        raise UserError(f"{where}: no tasks; a config has {keys}")
    return found


def open_run(path: Path, kind: str | None = None) -> "SavedRun[Any]":
    """A run of any kind, or of the kind that is wanted; another one is refused with the command that it is for."""
    folder = RunFolder(path)
    if not folder.config.is_file():
        train = f"eftgan train {kind}" if kind else "eftgan train"
        raise UserError(f"{path}: no run there (config.yaml is missing); train one with: {train}")
    name = folder.read_facts().get("kind")
    its = load_kind(name) if name in KINDS else kind_of_config(read_yaml(folder.config), str(folder.config))
    if kind not in (None, its.name):
        raise UserError(f"{path} is a {its.name} run; use: eftgan {its.verb} {shlex.quote(str(path))}")
    return its.run_type(path)
