"""The kinds of experiments: a new one is a folder beside `gan/` and `classifier/`, and a line here."""

import difflib
import importlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eftgan.config import read_yaml
from eftgan.errors import UserError
from eftgan.hub.package import fetch_description
from eftgan.hub.remote import NAME, PREFIX, HubRepo
from eftgan.runfolder import RunFolder

if TYPE_CHECKING:
    from eftgan.training.kind import Kind
    from eftgan.training.run import SavedRun

# Name -> where its Kind stands; imported when it is used, since that takes seconds.
KINDS: dict[str, str] = {"gan": "eftgan.gan.kind:GAN", "classifier": "eftgan.classifier.kind:CLASSIFIERS"}
DEMO = "shapes"  # the name of the config that every kind has: drawn pictures, so that nothing is downloaded


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


def load_run(
    name: str | Path, task: str | int | None = None, *, revision: str | None = None, token: str | None = None
) -> "SavedRun[Any]":
    """A run of any kind: of a folder, or on the Hub.

    Args:
        name: the folder, or USER/NAME on the Hub.
        task: from the Hub, fetch only this one's file, and what all tasks share.
        revision: a branch, tag or commit.
        token: of the Hub, where the run is private (default: the one that huggingface_hub knows).
    """
    if not str(name).startswith(PREFIX) and (Path(name).is_dir() or not NAME.fullmatch(str(name))):
        return open_run(name)
    return _fetch_run(HubRepo.parse(str(name), revision, token), None, task)


def open_run(given: str | Path, kind: str | None = None, task: str | int | None = None) -> "SavedRun[Any]":
    """A run of any kind, or of the kind that is wanted; another one is refused with the command that it is for.

    given: a folder, or as text hf:USER/NAME for one on the Hub, of which only what `task` needs is fetched.
    """
    if isinstance(given, str) and given.startswith(PREFIX):
        return _fetch_run(HubRepo.parse(given), kind, task)
    return _open_folder(Path(given), kind, str(given))


def _fetch_run(repo: HubRepo, kind: str | None, task: str | int | None) -> "SavedRun[Any]":
    return _open_folder(fetch_description(repo), kind, f"{PREFIX}{repo.name}").with_tasks(repo, task)


def _open_folder(path: Path, kind: str | None, shown: str) -> "SavedRun[Any]":
    """`shown`: what people typed for it."""
    folder = RunFolder(path)
    if not folder.config.is_file():
        train = f"eftgan train {kind}" if kind else "eftgan train"
        raise UserError(f"{path}: no run there (config.yaml is missing); train one with: {train}")
    name = folder.read_facts().get("kind")
    its = load_kind(name) if name in KINDS else kind_of_config(read_yaml(folder.config), str(folder.config))
    if kind not in (None, its.name):
        raise UserError(f"{shown} is a {its.name} run; use: eftgan {its.verb} {shlex.quote(shown)}")
    return its.run_type(path)


def configs_folder() -> Path:
    """The configs that come with the package, a folder per kind: inside an installed one, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def shipped_configs(kind: str) -> list[str]:
    """The names of a kind's configs (shapes) and of their recipes (shapes/eft-plus)."""
    folder = configs_folder() / kind
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def find_config(given: str, kind: str | None = None) -> Path:
    """The file that is given, or a config that comes with the package by its name: shapes, gan/shapes, shapes/eft-plus.

    kind: only its own configs; a name that several kinds have must otherwise say which.
    """
    if Path(given).is_file():
        return Path(given)
    whole = {f"{each}/{name}": each for each in KINDS for name in shipped_configs(each)}
    found = [name for name, each in whole.items() if given in (name, name.removeprefix(f"{each}/"))]
    own = [name for name in found if kind in (None, whole[name])]
    if len(own) == 1:
        return configs_folder() / f"{own[0]}.yaml"
    if own:
        raise UserError(f"{given}: several kinds have a config of that name; choose from: {', '.join(own)}")
    if found:
        theirs = whole[found[0]]
        raise UserError(f"{given}: a config of another kind; use: eftgan train {theirs} --config {shlex.quote(given)}")
    raise UserError(f"{given}: no such config file, and no config of that name; {_nearest_config(given, kind)}")


def _nearest_config(given: str, kind: str | None) -> str:
    """The nearest name, and all of them but for the recipes."""
    own = shipped_configs(kind) if kind else [f"{each}/{name}" for each in KINDS for name in shipped_configs(each)]
    typed = given.removesuffix(".yaml").removeprefix("configs/").removeprefix(f"{kind}/")
    tails = {name.partition("/")[2]: name for name in own} if kind is None else {}
    near = difflib.get_close_matches(typed, [*own, *tails], 1)
    bases = [name for name in own if name.count("/") == (kind is None)]
    hint = f"did you mean {tails.get(near[0], near[0])}? There" if near else "there"
    return f"{hint} are: {', '.join(bases)}"
