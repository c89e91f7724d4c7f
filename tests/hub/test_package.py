"""Which keys of a config are places on a machine, and what becomes of them."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, get_type_hints

import pytest

from eftgan.config import Choice, Local, _choice_in, _dataclasses_in, _extras, _type_name, without_places
from eftgan.kinds import KINDS, load_kind

# Texts that are no places: names, and what people call things.
NAMES = r"(\w+\.)*(name|kind|init|first_init|title|options|exclude|sizes|log_with|discriminator|inference)"


@dataclass(frozen=True)
class Source:
    data: Annotated[str, Local(portable=r"shapes:\w+")]
    name: str = "a"


@dataclass(frozen=True)
class Net:
    name: str = "net"
    weights: Annotated[str | dict[str, str] | None, Local()] = None


@dataclass(frozen=True)
class Whole:
    sources: list[Source]
    net: Annotated[Net, Choice({"net": Net}, "net")] = field(default_factory=Net)
    start: Annotated[str | None, Local(blank=None)] = None


def test_places_are_left_out_wherever_they_stand_and_all_else_stays():
    data = {
        "sources": [{"data": "/home/me/cats", "name": "cats"}, {"data": "shapes:discs"}],
        "net": {"name": "net", "weights": {"generator": "/home/me/g.pth"}},
        "start": "/home/me/run",
    }
    assert without_places(Whole, data) == {
        "sources": [{"data": "not-shared", "name": "cats"}, {"data": "shapes:discs"}],
        "net": {"name": "net", "weights": {"generator": "not-shared"}},
        "start": None,
    }
    assert without_places(Whole, {"sources": [], "net": {"weights": None}}) == {"sources": [], "net": {"weights": None}}


def unmarked_texts(config: type, prefix: str = "") -> Iterator[str]:
    """Keys that may hold any text and are not marked as places."""
    hints = get_type_hints(config, include_extras=True)
    for key, hint in ((each.name, hints[each.name]) for each in dataclasses.fields(config) if each.init):
        choice = _choice_in(hint)
        if any(isinstance(extra, Local) for extra in _extras(hint)):
            continue
        if choice is None and re.search(r"\bstr\b", _type_name(hint)):
            yield f"{prefix}{key}"
        for inner in choice.registry.values() if choice else _dataclasses_in(hint):
            yield from unmarked_texts(inner, f"{prefix}{key}.")


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_key_that_holds_text_is_marked_as_a_place_or_known_as_a_name(kind):
    found = list(unmarked_texts(load_kind(kind).experiment_type))
    assert "title" in found
    assert [key for key in found if not re.fullmatch(NAMES, key)] == [], "mark it Local(), or add it to NAMES"
