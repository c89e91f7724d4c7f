"""Pages that are made from the program itself, so that they cannot go stale: configs, commands, the library."""

import argparse
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator

import eftgan
from data_prep.__main__ import build_parser
from eftgan.commands import VERBS, load_verb, verb_parser
from eftgan.config import describe
from eftgan.kinds import KINDS, configs_folder, load_kind, shipped_configs
from eftgan.methods import METHODS

# What those who add something derive from; CONTRIBUTING.md says how.
SEAMS = (
    "eftgan.methods.base.Method",
    "eftgan.adapters.transforms.base.Transform",
    "eftgan.adapters.transforms.base.Planner",
    "eftgan.models.gans.base.GanFamily",
    "eftgan.evaluation.metrics.base.Metric",
    "eftgan.training.kind.Kind",
)
# The chapters of the library's page: where a public name is defined -> its heading, in order.
CHAPTERS = {
    "eftgan.adapters": "Adapters for any network",
    "eftgan.evaluation": "Measuring",
    "eftgan": "Runs and trained networks",  # whatever is left
}


def pages() -> dict[str, str]:
    """Every generated page by its place on the site."""
    configs = {f"reference/{kind}.md": config_page(kind) for kind in KINDS}
    return {**configs, "reference/commands.md": command_page(), "reference/library.md": library_page()}


def config_page(kind: str) -> str:
    """Every key of a kind's config, and the configs that come with the package."""
    trained = load_kind(kind)
    keys = sorted(describe(trained.experiment_type), key=lambda key: not key[0].startswith(trained.sequence_key))
    meanings = {path: doc for path, _, doc in keys}
    sections = {_parent(path) for path in meanings}
    text = [
        f"# Config of a {'GAN' if kind == 'gan' else kind}\n",
        f"What may stand in the YAML file of `eftgan train {kind} --config FILE`. Every key can be set on the command",
        "line too, by its path (`training.steps=2000`); entries of lists have numbers from 0 (`tasks.0.limit=500`).",
        f"`eftgan train {kind} --help` prints the same.\n",
        "## Configs by name\n",
        *_terms((f"`{name}`", *lines) for name, lines in _shipped(kind)),
        "## Top level\n",
    ]
    for parent in dict.fromkeys(_parent(path) for path in meanings):
        if parent:
            text.append(_section(parent, meanings))
        text += _terms(_key(*key, has_section=key[0] in sections) for key in keys if _parent(key[0]) == parent)
    return "\n".join(text)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _anchor(path: str) -> str:
    """method[eft].init -> method.eft.init"""
    return re.sub(r"\[([\w-]+)\]", r".\1", path)


def _section(parent: str, meanings: dict[str, str]) -> str:
    """The heading over the keys of a mapping."""
    chosen = re.fullmatch(r"(\w+)\[([\w-]+)\]", parent)
    if chosen is None:
        typed = re.sub(r"\[[\w-]+\]", "", parent)
        return f"## `{typed}` {{ #{_anchor(parent)} }}\n\n{_sentence(meanings.get(parent, ''))}.\n"
    key, name = chosen.groups()
    linked = f"[{METHODS[name].title}](../methods/{name}.md). " if key == "method" and name in METHODS else ""
    return f"## `{key}: {{name: {name}}}` {{ #{key}.{name} }}\n\n{linked}Typed `{key}.KEY`.\n"


def _key(path: str, value: str, doc: str, *, has_section: bool) -> tuple[str, ...]:
    kind, _, default = value.partition(" = ")
    shown = f"`{kind}`, default `{default}`" if default else f"`{kind}`"
    name, anchor = path.rpartition(".")[2], _anchor(path)
    term = f"[`{name}`](#{anchor})" if has_section else f"`{name}` {{ #{anchor} }}"
    return term, *([_sentence(doc)] if doc else []), shown


def _sentence(text: str) -> str:
    """A fragment of help as Markdown: what would be markup outside code is taken as it is written."""
    parts = (text[:1].upper() + text[1:]).split("`")
    return "`".join(re.sub(r"([<*_])", r"\\\1", part) if n % 2 == 0 else part for n, part in enumerate(parts))


def _terms(entries: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A definition list: a term and its paragraphs; unlike a table it is read as well on a phone."""
    for term, *paragraphs in entries:
        yield f"{term}\n:   " + "\n\n    ".join(paragraphs or ["&nbsp;"]) + "\n"


def _shipped(kind: str) -> Iterator[tuple[str, list[str]]]:
    """Names of configs and what their first comment says; recipes stand with the config that they change."""
    names = shipped_configs(kind)
    for name in (each for each in names if "/" not in each):
        first = (configs_folder() / kind / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
        recipes = [f"`{each}`" for each in names if each.startswith(f"{name}/")]
        yield name, [first.lstrip("# "), *([f"Recipes: {', '.join(recipes)}"] if recipes else [])]


def command_page() -> str:
    """Every command with its options and examples."""
    text = [
        "# Commands\n",
        "`COMMAND --help` prints the same. A user's mistake ends with exit code 2 and one message.\n",
    ]
    for name in VERBS:
        verb = load_verb(name)
        text += [f"## `eftgan {name}`\n", f"{verb.HELP}\n", f"```\n{verb.EXAMPLES}\n```\n"]
        text += _options(verb_parser(name, verb))
    parser = build_parser()
    text += ["## `python -m data_prep`\n", f"{parser.description}\n"]
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help for choice in commands._choices_actions}
    for name, command in commands.choices.items():
        text += [f"### `python -m data_prep {name}`\n", f"{_sentence(helps.get(name) or '')}.\n"]
        about = (command.description or "").partition("\n\n")[2].strip("\n")
        text += [f"```text\n{about}\n```\n"] if about else []
        text += _options(command)
    return "\n".join(text)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    for action in actions:
        if action.help is argparse.SUPPRESS:
            continue
        said = formatter._expand_help(action) if action.help else ""
        yield from _terms([(f"`{formatter._format_action_invocation(action)}`", *([_sentence(said)] if said else []))])


def library_page() -> str:
    """What `import eftgan` gives, by the docstrings, and what extensions derive from."""
    chapters: dict[str, list[str]] = {place: [] for place in CHAPTERS}
    for name in eftgan.__all__:
        defined = getattr(eftgan, name)
        place = next(place for place in CHAPTERS if defined.__module__.startswith(place))
        chapters[place].append(f"{defined.__module__}.{name}")
    text = ["# The library\n", f"{_library_intro()}\n"]
    for place, names in chapters.items():
        text += [f"## {CHAPTERS[place]}\n", *map(_documented, names)]
    text += ["## What extensions derive from\n", "[Contributing](../contributing.md) says how to add each of them.\n"]
    text += [f"{_documented(path)}    options: {{show_source: true}}\n" for path in SEAMS]  # its comments say more
    return "\n".join(text)


def _library_intro() -> str:
    return "Everything in the first chapters is imported from `eftgan` itself: `from eftgan import insert_adapters`."


def _documented(path: str) -> str:
    """mkdocstrings' word for the documentation of a name, which must exist and have some."""
    module, _, name = path.rpartition(".")
    if not inspect.getdoc(getattr(importlib.import_module(module), name)):
        raise ValueError(f"{path} has no docstring")
    return f"::: {path}\n"
