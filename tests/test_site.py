"""The documentation site: what is made from the program is complete, and links lead where they should."""

import argparse
import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import eftgan
from data_prep.__main__ import build_parser
from eftgan.commands import VERBS, load_verb, verb_parser
from eftgan.config import describe
from eftgan.kinds import KINDS, load_kind

SITE = Path(__file__).parents[1] / "docs" / "site"
PUBLIC = {name: getattr(eftgan, name) for name in eftgan.__all__}


@pytest.fixture(scope="module", autouse=True)
def site_modules():
    """The modules beside mkdocs.yml import each other by their names, as mkdocs does."""
    sys.path.insert(0, str(SITE))
    yield
    sys.path.remove(str(SITE))


@pytest.mark.parametrize(
    ("page", "link", "moved"),
    [
        ("index.md", "docs/methods/eft.md#keys", "methods/eft.md#keys"),
        ("index.md", "docs/results/", "results/README.md"),
        ("index.md", "CONTRIBUTING.md", "contributing.md"),
        ("contributing.md", "eftgan/methods/base.py", "source/eftgan/methods/base.py.md"),
        ("contributing.md", "tests/methods", "source/tests/methods.md"),
        ("methods/eft.md", "../../eftgan/methods/eft.py", "../source/eftgan/methods/eft.py.md"),
        ("methods/eft.md", "../paper.md", "../paper.md"),
        ("contributing.md", "docs/site/reference.py", "source/docs/site/reference.py.md"),
        ("methods.md", "../CONTRIBUTING.md#add-a-method", "contributing.md#add-a-method"),
        ("paper.md", "https://arxiv.org/abs/2103.13558", "https://arxiv.org/abs/2103.13558"),
        ("paper.md", "#the-appendix", "#the-appendix"),
    ],
)
def test_a_link_of_the_repository_leads_to_its_page_of_the_site(page, link, moved):
    links = importlib.import_module("links")
    assert links.rewrite(f"See [it]({link}), `x[0](y.md)`.\n", page).startswith(f"See [it]({moved})")


def test_links_in_blocks_of_code_stay_as_they_are():
    links = importlib.import_module("links")
    block = "```python\nnet[0](docs/paper.md)\n```\n"
    assert links.rewrite(f"[a](docs/paper.md)\n\n{block}", "index.md") == f"[a](paper.md)\n\n{block}"


def test_every_file_that_a_page_links_to_is_shown():
    links, source = importlib.import_module("links"), importlib.import_module("source")
    text = (links.ROOT / "CONTRIBUTING.md").read_text()
    shown = links.shown_files(text, "contributing.md")
    assert {"eftgan/methods/ewc.py", "tests/methods"} <= shown
    pages = source.pages(shown)
    assert "class Ewc(" in pages["source/eftgan/methods/ewc.py.md"]
    assert "[`test_regularisers.py`](methods/test_regularisers.py.md)" in pages["source/tests/methods.md"]
    assert "source/tests/methods/test_regularisers.py.md" in pages


def test_pages_that_the_order_does_not_name_take_the_place_of_its_patterns():
    expand = importlib.import_module("navigation").expand
    nav = [{"Guide": ["guide.md", "*.md"]}, {"Methods": [{"Overview": "methods.md"}, "methods/*.md"]}]
    pages = ["guide.md", "hub.md", "methods.md", "methods/eft.md", "methods/ewc.md", "results/a.md"]
    assert expand(nav, pages) == [
        {"Guide": ["guide.md", "hub.md"]},
        {"Methods": [{"Overview": "methods.md"}, "methods/eft.md", "methods/ewc.md"]},
    ]


def test_a_built_site_with_broken_links_or_things_from_elsewhere_is_refused(tmp_path):
    problems = importlib.import_module("check").problems
    (tmp_path / "style.css").write_text("a { background: url(https://x.org/a.png) }")
    (tmp_path / "b.html").write_text("<h1 id='top'>B</h1>")
    page = "<a href='b.html#top'>good</a> <a href='https://x.org'>elsewhere</a> <a href='#here' id='here'>here</a>"
    (tmp_path / "a.html").write_text(page)
    assert problems(tmp_path) == ["style.css: loads https://x.org/a.png"]
    bad = "<a href='b.html#gone'></a><a href='c.html'></a><script src='https://x.org/a.js'></script>"
    (tmp_path / "a.html").write_text(page + bad)
    assert problems(tmp_path)[:3] == [
        "a.html: loads https://x.org/a.js",
        "a.html: no anchor for b.html#gone",
        "a.html: no file for c.html",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_a_config_is_explained_once(kind):
    reference = importlib.import_module("reference")
    page = reference.config_page(kind)
    keys = list(describe(load_kind(kind).experiment_type))
    assert [path for path, _, doc in keys if not doc and not path.endswith(".name")] == []
    anchors = re.findall(r"\{ #(\S+) \}", page)
    assert len(anchors) == len(set(anchors))
    assert {re.sub(r"\[([\w-]+)\]", r".\1", path) for path, _, _ in keys} <= set(anchors)


def commands() -> dict[str, argparse.ArgumentParser]:
    verbs = {f"eftgan {name}": verb_parser(name, load_verb(name)) for name in VERBS}
    (sets,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return verbs | {f"python -m data_prep {name}": parser for name, parser in sets.choices.items()}


def test_every_command_and_every_option_is_on_the_page_with_its_meaning():
    page = importlib.import_module("reference").command_page()
    for command, parser in commands().items():
        section = page.partition(f"# `{command}`\n")[2].partition("\n## ")[0]
        for action in parser._actions[1:]:
            assert action.help, f"{command}: {action.dest} has no help"
            assert (action.option_strings or [action.metavar or action.dest])[-1] in section, f"{command} {action.dest}"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented_with_its_arguments(name):
    text, public = inspect.getdoc(PUBLIC[name]), PUBLIC[name]
    assert text
    assert f".{name}\n" in importlib.import_module("reference").library_page()
    if public is eftgan.UserError:
        return
    arguments = [each for each in inspect.signature(public).parameters if each != "model"]
    named = re.findall(r"^    (\w+): ", text.partition("\nArgs:\n")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert [each for each in named if each != "model"] == arguments


def adapted_network() -> nn.Module:
    """What the examples call `net`: two tasks, birds with more classes than cats."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    eftgan.insert_adapters(net, eftgan.AdapterConfig(a=4, b=8, heads=("3",)))
    eftgan.add_task(net, "cats")
    eftgan.add_task(net, "birds", head_size=20)
    return net


@pytest.mark.parametrize("name", [name for name, public in PUBLIC.items() if ">>> " in (public.__doc__ or "")])
def test_the_examples_of_docstrings_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {**PUBLIC, "torch": torch, "nn": nn, "net": adapted_network(), "images": torch.randn(4, 3, 8, 8)}
    (test,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs=known)
    lines: list[str] = []
    failed = doctest.DocTestRunner(verbose=False).run(test, out=lines.append).failed
    assert failed == 0, "".join(lines)
