"""Typed configs: dataclasses filled from YAML files and `key=value` words, every mistake named by its path.

pydantic checks the types; unknown keys are found here, so that the nearest valid name can be given.
"""

import copy
import dataclasses
import difflib
import functools
import json
import math
import re
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, core_schema
from typing_extensions import Doc

from eftgan.errors import UserError

Config = TypeVar("Config")
Data = dict[str, Any]

# What configs are written with: `steps: Annotated[Count, Doc("optimizer steps per task")] = 1000`
Count = Annotated[int, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several dataclasses, told apart by their key `name`: `method: Annotated[Method, Choice(METHODS, "eft")]`.

    The registry is read when a config is built: whoever adds a line to it before that is heard.
    """

    registry: Mapping[str, type]
    default: str  # where `name` is not given
    suits: Callable[[type], bool] = lambda member: True  # which of them --help shows and mistakes are answered with

    def name_of(self, value: Any) -> Any:
        """The name that a mapping, or an instance, goes by."""
        return value.get("name", self.default) if isinstance(value, dict) else getattr(value, "name", None)

    @property
    def suited(self) -> dict[str, type]:
        return {name: member for name, member in self.registry.items() if self.suits(member)}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        known = dict(self.registry)
        _REGISTRIES_READ.append((self.registry, known))
        members = {name: handler.generate_schema(member) for name, member in known.items()}
        return core_schema.tagged_union_schema(members, discriminator=self.name_of)


Registries = list[tuple[Mapping[str, type], dict[str, type]]]  # each beside its lines when it was read
_REGISTRIES_READ: Registries = []  # by the checks in the making
_CHECKS: dict[type, tuple[TypeAdapter, Registries]] = {}
_MAKING_CHECKS = threading.Lock()


def _checks_of(kind: type[Config]) -> TypeAdapter[Config]:
    """What pydantic checks a config by: takes a tenth of a second to make, so it is kept until a registry changes."""
    with _MAKING_CHECKS:
        checks, read = _CHECKS.get(kind, (None, []))
        if checks is None or any(dict(registry) != then for registry, then in read):
            _REGISTRIES_READ.clear()
            checks = TypeAdapter(kind)
            _CHECKS[kind] = checks, list(_REGISTRIES_READ)
        return checks


@dataclasses.dataclass(frozen=True)
class OnlyFor:
    """Marks a key that has an effect for one kind of experiment only: `Annotated[..., OnlyFor("classifier")]`."""

    kind: str


@dataclasses.dataclass(frozen=True)
class Local:
    """Marks a key whose value is a place on this machine: `Annotated[str, Local(), Doc("...")]`.

    Whoever shares a config (`eftgan push`) leaves such values out.
    """

    blank: str | None = "not-shared"  # what stands there instead
    portable: str = r"(?!)"  # a pattern of values that mean the same everywhere, and stay: none

    def shared(self, value: Any) -> Any:
        """The value as others may see it."""
        if isinstance(value, dict):
            return {key: self.shared(inner) for key, inner in value.items()}
        return value if value is None or re.fullmatch(self.portable, str(value)) else self.blank


def keys_of_other_kinds(config: Any, kind: str) -> dict[str, str]:
    """Keys that differ from their default though they have no effect for this kind -> the kind that they are for."""
    hints = get_type_hints(type(config), include_extras=True)
    found = {}
    for each in dataclasses.fields(config):
        others = [extra.kind for extra in _extras(hints[each.name]) if isinstance(extra, OnlyFor)]
        if others and kind not in others and getattr(config, each.name) != each.default:
            found[each.name] = others[0]
    return found


# What may differ between runs of one experiment: it does not change what is learned.
FREE_KEYS = (
    "out",
    "title",
    "log_with",
    "evaluation",
    "inference",
    "training.workers",
    "training.threads",
    "training.processes",
    "training.log_every_steps",
    "training.snapshot_every_steps",
    "training.save_every_steps",
)


class _Loader(yaml.SafeLoader):
    """YAML without tags that make objects, aliases that multiply them or keys given twice; 1e-4 is a number."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            name = self.peek_event().anchor
            raise yaml.YAMLError(f"the alias *{name} is not allowed; write the value out, or use extends:")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if (first := lines.get((key.tag, key.value))) is not None:
                raise yaml.YAMLError(f"line {line} gives the key {key.value} again (first: line {first}); keep one")
            lines[key.tag, key.value] = line
        return node


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
    except (ValueError, OverflowError) as error:  # what looks like a number or a date, and is none
        reason = "a number has too many digits" if "digits" in str(error) else str(error)
        raise UserError(f"{where}: not plain YAML: {reason}") from error


_parsed = functools.lru_cache(maxsize=256)(parse_yaml)


def _parse_once(text: str, where: str) -> Any:
    """The same, quick for a text that was parsed before: many recipes extend one config."""
    try:
        return copy.deepcopy(_parsed(text, where))
    except RecursionError as error:
        raise UserError(f"{where}: not plain YAML: nested too deeply") from error


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
    data = _parse_once(text, str(path)) or {}
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
    word = word if len(word) <= 200 else f"{word[:60]} ..."  # as messages show it
    append = path.endswith("+")
    keys = path.removesuffix("+").strip().split(".")
    if not separator or not all(keys):
        raise UserError(f"{word!r}: expected key=value, for example training.steps=2000")
    value = parse_yaml(text, word)
    place: Any = data
    for key in keys[:-1]:
        place = _enter(place, key, word)
    last: Any = keys[-1]
    if isinstance(place, list):
        last = _list_index(place, keys[-1], word)
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
    if isinstance(place.get(key), str):  # a name alone stands for the mapping that it is short for: method=ewc
        place[key] = {"name": place[key]}
    return place.setdefault(key, {})


def _list_index(place: list, key: str, word: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 10) or int(key) >= len(place):
        raise UserError(f"{word!r}: {key[:60]!r} is not a place in a list of {len(place)}; they count from 0")
    return int(key)


def build(kind: type[Config], data: Data, where: str = "config") -> Config:
    """Check a mapping against a config dataclass and make it."""
    _refuse_unknown_keys(kind, data, where, "")
    try:
        text = json.dumps(data, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a plain mapping of names to values ({error})") from error
    _refuse_infinite(data, where)
    if "\\u0000" in text:
        raise UserError(f"{where}: a value holds a NUL character")
    try:
        return _checks_of(kind).validate_json(text, strict=True)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise UserError(f"{where}: " + "; ".join(dict.fromkeys(lines))) from error


def _refuse_infinite(value: Any, where: str, path: str = "") -> None:
    """Refuse numbers that JSON, and so a run's own files, cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {path.removesuffix('.')} is {value}, not a number to compute with")
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        _refuse_infinite(each, where, f"{path}{key}.")


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
    return json.loads(_checks_of(type(config)).dump_json(config))


def _explain(problem: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"]) or "the whole"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if problem["type"] == "missing":
        return f"{path} is missing"
    given = json.dumps(problem["input"], default=str)
    return f"{path}: {message}" + (f", not {given}" if len(given) < 60 else "")


def _refuse_unknown_keys(hint: Any, data: Any, where: str, path: str) -> None:
    """Every key of the mapping must be a field; dataclasses inside lists, choices and optional values are looked into.

    A name alone in the place of a choice (`method: ewc`) becomes the mapping that it stands for.
    """
    choice = _choice_in(hint)
    kind = _plain_type(hint) if choice is None else _chosen(choice, data, where, path)
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        hints = get_type_hints(kind, include_extras=True)
        names = [each.name for each in dataclasses.fields(kind) if each.init]
        for key, value in data.items():
            if key not in names:
                near = difflib.get_close_matches(str(key), names, 1, 0.5)
                hint = f"did you mean {path}{near[0]}?" if near else f"there are: {', '.join(names)}"
                if choice is not None:
                    hint += f" (of another kind? {path[:-1]}={{name: {choice.name_of(data)}}} begins anew)"
                raise UserError(f"{where}: unknown key {path}{key}; {hint}")
            if _choice_in(hints[key]) and isinstance(value, str):
                data[key] = value = {"name": value}
            _refuse_unknown_keys(hints[key], value, where, f"{path}{key}.")
    elif get_origin(kind) in (list, tuple) and isinstance(data, list):
        for index, value in enumerate(data):
            _refuse_unknown_keys(get_args(kind)[0], value, where, f"{path}{index}.")


def without_places(hint: Any, data: Any) -> Any:
    """The mapping of a config without the places on this machine that it names, see `Local`."""
    for extra in _extras(hint):
        if isinstance(extra, Local):
            return extra.shared(data)
    choice = _choice_in(hint)
    kind = choice.registry.get(choice.name_of(data)) if choice is not None else _plain_type(hint)
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        hints = get_type_hints(kind, include_extras=True)
        return {key: without_places(hints[key], value) for key, value in data.items() if key in hints}
    if get_origin(kind) in (list, tuple) and isinstance(data, list):
        return [without_places(get_args(kind)[0], value) for value in data]
    return data


def _extras(hint: Any) -> tuple[Any, ...]:
    """What stands behind the type in Annotated[type, ...]."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _choice_in(hint: Any) -> Choice | None:
    return next((extra for extra in _extras(hint) if isinstance(extra, Choice)), None)


def _plain_type(hint: Any) -> Any:
    """The type behind Annotated and Optional; None where several are possible."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    members = [member for member in get_args(hint) if member is not type(None)]
    return _plain_type(members[0]) if len(members) == 1 else None


def _chosen(choice: Choice, data: Any, where: str, path: str) -> type:
    """The dataclass that a mapping's `name` stands for."""
    if not isinstance(data, dict):
        raise UserError(
            f"{where}: {path[:-1]} is {json.dumps(data, default=str)}; give a name or {{name: ..., key: ...}}"
        )
    name = choice.name_of(data)
    if not isinstance(name, str) or name not in choice.registry:
        near = difflib.get_close_matches(str(name), choice.suited, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from: {', '.join(choice.suited)}"
        raise UserError(f"{where}: {path}name is {name!r}; {hint}")
    return choice.registry[name]


def describe(config: type, prefix: str = "", kind: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Every key of a config: (path, type and default, what it means), for --help.

    kind: of the experiment; keys that are for another one are left out.
    """
    hints = get_type_hints(config, include_extras=True)
    kind = kind or getattr(config, "kind", None)
    for each in dataclasses.fields(config):
        hint = hints[each.name]
        if not each.init or any(isinstance(extra, OnlyFor) and extra.kind != kind for extra in _extras(hint)):
            continue
        doc = next((extra.documentation for extra in _extras(hint) if isinstance(extra, Doc)), "")
        yield f"{prefix}{each.name}", f"{_type_name(hint)}{_default_text(each)}", doc
        choice = _choice_in(hint)
        if choice is not None:
            several = len(choice.suited) > 1
            for name, member in choice.suited.items():
                yield from describe(member, f"{prefix}{each.name}{f'[{name}]' * several}.", kind)
            continue
        for member in _dataclasses_in(hint):
            yield from describe(member, f"{prefix}{each.name}.", kind)


def _dataclasses_in(hint: Any) -> list[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return [hint]
    return [found for inner in get_args(hint) for found in _dataclasses_in(inner)]


def _type_name(hint: Any) -> str:
    origin = get_origin(hint)
    if (choice := _choice_in(hint)) is not None:
        return " | ".join(choice.suited)
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
        default = each.default_factory()
        if dataclasses.is_dataclass(default):
            return f" = {default.name}" if hasattr(default, "name") else ""
        return f" = {json.dumps(default)}"
    return ""
