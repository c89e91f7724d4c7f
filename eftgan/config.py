"""Typed configs: dataclasses filled from YAML files and `key=value` words, every mistake named by its path.

pydantic checks the types; unknown keys are found here, so that the nearest valid name can be given.
"""

import dataclasses
import difflib
import json
import re
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import Doc

from eftgan.errors import UserError

Config = TypeVar("Config")
Data = dict[str, Any]

# What configs are written with: `steps: Annotated[Count, Doc("optimizer steps per task")] = 1000`
Count = Annotated[int, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]

# What may differ between runs of one experiment: it does not change what is learned.
FREE_KEYS = (
    "out",
    "title",
    "log_with",
    "evaluation",
    "training.workers",
    "training.log_every_steps",
    "training.snapshot_every_steps",
    "training.save_every_steps",
)


class _Loader(yaml.SafeLoader):
    """YAML without tags that make objects or aliases that multiply them, and with 1e-4 read as a number."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):
            name = self.peek_event().anchor
            raise yaml.YAMLError(f"the alias *{name} is not allowed; write the value out, or use extends:")
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{where}: not plain YAML: {' '.join(str(error).split())}") from error


def read_yaml(path: Path, seen: tuple[Path, ...] = ()) -> Data:
    """A config file's mapping, laid over the file that its key `extends` names (relative to it)."""
    if not path.is_file():
        raise UserError(f"{path}: no such config file")
    if path.resolve() in seen:
        raise UserError(f"{path}: extends itself by way of {seen[-1]}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})") from error
    data = parse_yaml(text, str(path)) or {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise UserError(f"{path}: a config is a mapping of keys to values")
    parent = data.pop("extends", None)
    return data if parent is None else overlay(read_yaml(path.parent / str(parent), (*seen, path.resolve())), data)


def overlay(below: Any, above: Any) -> Any:
    """Mappings are joined key by key; a mapping that names another kind (`name:`) replaces the one below."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    if "name" in above and above["name"] != below.get("name"):
        return above
    return {key: overlay(below.get(key), above.get(key, below.get(key))) for key in {**below, **above}}


def apply_override(data: Data, word: str) -> None:
    """Set one `path.to.key=value` in place; `key+=value` adds to a list."""
    path, separator, text = word.partition("=")
    append = path.endswith("+")
    keys = path.removesuffix("+").strip().split(".")
    if not separator or not all(keys):
        raise UserError(f"{word!r}: expected key=value, for example training.steps=2000")
    value = parse_yaml(text, word)
    place: Any = data
    for key in keys[:-1]:
        place = _enter(place, key, word)
    last = keys[-1]
    if isinstance(place, list):
        last = _list_index(place, last, word)
    elif not isinstance(place, dict):
        raise UserError(f"{word!r}: {'.'.join(keys[:-1])} has no keys")
    if append:
        before = place[last] if isinstance(place, list) else place.get(last, [])
        if not isinstance(before, list):
            raise UserError(f"{word!r}: {'.'.join(keys)} is not a list; use = to set it")
        place[last] = before + [
            new for new in (value if isinstance(value, list) else [value]) if not any(_has(old, new) for old in before)
        ]
    else:
        place[last] = value


def _has(old: Any, new: Any) -> bool:
    """Whether `new` was added before: the same command must continue a run that it has already extended."""
    if isinstance(old, dict) and isinstance(new, dict):
        return bool(new) and all(key in old and old[key] == value for key, value in new.items())
    return old == new


def _enter(place: Any, key: str, word: str) -> Any:
    if isinstance(place, list):
        return place[_list_index(place, key, word)]
    if not isinstance(place, dict):
        raise UserError(f"{word!r}: {key!r} stands inside a value that has no keys")
    return place.setdefault(key, {})


def _list_index(place: list, key: str, word: str) -> int:
    if not key.isdigit() or int(key) >= len(place):
        raise UserError(f"{word!r}: {key!r} is not a place in a list of {len(place)}; they count from 0")
    return int(key)


def build(kind: type[Config], data: Data, where: str = "config") -> Config:
    """Check a mapping against a config dataclass and make it."""
    _refuse_unknown_keys(kind, data, where, "")
    try:
        text = json.dumps(data, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a plain mapping of names to values ({error})") from error
    if "\\u0000" in text:
        raise UserError(f"{where}: a value holds a NUL character")
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise UserError(f"{where}: " + "; ".join(dict.fromkeys(lines))) from error


def load(kind: type[Config], path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """A config from a YAML file and `key=value` words, later ones winning."""
    data = read_yaml(path) if path else {}
    for word in overrides:
        apply_override(data, word)
    return build(kind, data, str(path) if path else "config")


def dump(config: Any) -> str:
    """A config as YAML with every key written out: reading it gives the same config again."""
    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)


def plain(config: Any) -> Any:
    """A config as the JSON types."""
    return json.loads(TypeAdapter(type(config)).dump_json(config))


def _explain(problem: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"]) or "the whole"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "missing":
        return f"{path} is missing"
    given = json.dumps(problem["input"], default=str)
    return f"{path}: {message}" + (f", not {given}" if len(given) < 60 else "")


def _refuse_unknown_keys(kind: Any, data: Any, where: str, path: str) -> None:
    """Every key of the mapping must be a field; dataclasses inside lists, unions and mappings are looked into."""
    several = len(_dataclasses_in(kind)) > 1
    kind = _choose(kind, data, where, path)
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        hints = get_type_hints(kind)
        names = [each.name for each in dataclasses.fields(kind) if each.init]
        for key, value in data.items():
            if key not in names:
                near = difflib.get_close_matches(str(key), names, 1, 0.5)
                hint = f"did you mean {path}{near[0]}?" if near else f"there are: {', '.join(names)}"
                if several:
                    hint += f" (of another kind? {path[:-1]}={{name: {kind.name}}} begins anew)"
                raise UserError(f"{where}: unknown key {path}{key}; {hint}")
            _refuse_unknown_keys(hints[key], value, where, f"{path}{key}.")
    elif get_origin(kind) in (list, tuple) and isinstance(data, list):
        for index, value in enumerate(data):
            _refuse_unknown_keys(get_args(kind)[0], value, where, f"{path}{index}.")


def _choose(kind: Any, data: Any, where: str, path: str) -> Any:
    """The dataclass behind Annotated, Optional, or a union told apart by the key `name`."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    members = [member for member in get_args(kind) if member is not type(None)]
    if len(members) == 1:
        return _choose(members[0], data, where, path)
    named = {member.name: member for member in members if dataclasses.is_dataclass(member)}
    if not named or not isinstance(data, dict):
        return None
    name = data.get("name")
    if name not in named:
        near = difflib.get_close_matches(str(name), named, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from: {', '.join(named)}"
        raise UserError(f"{where}: {path}name is {'missing' if name is None else repr(name)}; {hint}")
    return named[name]


def describe(kind: type, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key of a config: (path, type and default, what it means), for --help."""
    hints = get_type_hints(kind, include_extras=True)
    for each in dataclasses.fields(kind):
        if not each.init:
            continue
        hint, doc = hints[each.name], ""
        if get_origin(hint) is Annotated:
            doc = next((extra.documentation for extra in get_args(hint) if isinstance(extra, Doc)), "")
        yield f"{prefix}{each.name}", f"{_type_name(hint)}{_default_text(each)}", doc
        members = _dataclasses_in(hint)
        for member in members:
            label = f"[{member.name}]" if len(members) > 1 else ""
            yield from describe(member, f"{prefix}{each.name}{label}.")


def _dataclasses_in(hint: Any) -> list[type]:
    if dataclasses.is_dataclass(hint):
        return [hint]
    return [found for inner in get_args(hint) for found in _dataclasses_in(inner)]


def _type_name(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        return _type_name(get_args(hint)[0])
    if origin is Literal:
        return " | ".join(map(str, get_args(hint)))
    if origin in (Union, types.UnionType):
        return " | ".join(_type_name(each) for each in get_args(hint))
    if origin in (list, tuple):
        return f"list of {_type_name(get_args(hint)[0])}"
    if origin is dict:
        return f"mapping to {_type_name(get_args(hint)[1])}"
    return {"NoneType": "null"}.get(hint.__name__, hint.__name__)


def _default_text(each: dataclasses.Field) -> str:
    if each.default is not dataclasses.MISSING:
        return f" = {json.dumps(each.default, default=str)}"
    if each.default_factory is not dataclasses.MISSING:
        return "" if dataclasses.is_dataclass(each.default_factory) else f" = {json.dumps(each.default_factory())}"
    return ""
