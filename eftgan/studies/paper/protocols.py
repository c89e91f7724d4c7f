"""How runs of a table differ from its config: less training, fewer tasks, other data, the authors' own settings."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from eftgan.config import apply_override
from eftgan.studies.sharing import AnyKind


@dataclass(frozen=True)
class Protocol:
    """A named change of settings; where `method` or `where` is given, of runs that have that method or key."""

    name: str
    about: str
    words: tuple[str, ...] = ()
    method: str | None = None
    where: str | None = None
    joins: tuple[str, ...] = ()  # stands for these

    def apply(self, data: dict[str, Any]) -> None:
        """Change a config's mapping in place, if it is meant."""
        if self.method in (None, method_of(data)) and (self.where is None or value_at(data, self.where) is not None):
            for word in self.words:
                apply_override(data, word)


@dataclass(frozen=True)
class Settings:
    """What is asked of all runs of a table."""

    budget: float = 1.0  # share of the epochs
    tasks: int | None = None
    limit: int | None = None  # images
    small: bool = False
    protocol: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # further overrides of the config
    places: Mapping[str, str] = field(default_factory=dict)  # of data, by the name of the set

    @property
    def folder(self) -> str:
        """A name for the runs with these settings; places are not settings."""
        parts = ["small"] * self.small
        parts += [f"budget-{self.budget:g}"] * (self.budget != 1)
        parts += [f"{key}-{value}" for key, value in (("tasks", self.tasks), ("limit", self.limit)) if value]
        parts += self.protocol
        if self.words:
            parts.append(f"other-{hashlib.sha256(repr(sorted(self.words)).encode()).hexdigest()[:8]}")
        return "_".join(parts) or "full"

    def name_of(self, place: str) -> str:
        """What the set at a place is called, also where `places` say that it is there."""
        return next((name for name, given in self.places.items() if given == place), set_name(place))

    def change(self, kind: AnyKind, data: dict[str, Any], protocols: Sequence[Protocol]) -> dict[str, Any]:
        """A config's mapping as these settings have it."""
        for entry in entries_with_data(kind, data):
            entry["data"] = self.places.get(set_name(entry["data"]), entry["data"])
        for protocol in protocols:
            protocol.apply(data)
        if self.tasks is not None:
            data = data | kind.first_tasks(data, self.tasks)
        if self.limit is not None:
            data = data | kind.limited(data, self.limit)
        return data if self.budget == 1 else data | kind.shortened(data, self.budget)


def entries_with_data(kind: AnyKind, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a config's mapping that name images."""
    return [each for each in (*data[kind.sequence_key], data.get("auxiliary")) if each and "data" in each]


def set_name(place: str) -> str:
    """What a set is called: data/256/cats.lmdb -> cats."""
    return PurePath(place).name.removesuffix(".lmdb")


def method_of(data: Mapping[str, Any]) -> str:
    """The name of a config's method."""
    method = data.get("method") or "eft"
    return str(method.get("name", "eft") if isinstance(method, dict) else method)


def value_at(data: Any, path: str) -> Any:
    """What stands at a.b.c of nested mappings; none where there is nothing."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data
