"""What the documents say of files, names, configs and commands is so."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import eftgan
from eftgan.commands import VERBS, load_verb, verb_parser
from eftgan.kinds import KINDS, shipped_configs
from eftgan.methods import METHODS, Method

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = sorted((ROOT / "docs" / "results").rglob("*.md"))  # show the commands that once made their figures
GUIDES = [path for path in DOCUMENTS if path not in RESULTS]  # show commands to type today

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
each_guide = pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))


def without_code(text: str) -> str:
    """A document without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def code_lines(text: str) -> Iterator[str]:
    """Lines of the code blocks without a language: what people type. Continued lines are joined."""
    for block in re.findall(r"^```\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        yield from block.replace("\\\n", " ").splitlines()


def links(text: str) -> list[str]:
    """Targets of a document's links and pictures that are not addresses."""
    prose = without_code(text)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r"^\[[^\]]+\]: (\S+)$", prose, flags=re.MULTILINE)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives a document's headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@each_document
def test_every_link_leads_to_a_file_and_heading(path):
    broken = []
    for link in links(path.read_text()):
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


@each_document
def test_lines_of_prose_are_short(path):
    free = re.compile(r"\||    |\[\w+\]: ")  # tables, formulas, addresses
    lines = without_code(path.read_text()).splitlines()
    assert [line for line in lines if len(line) > 120 and not free.match(line)] == []


def named(page: str) -> list[tuple[str, Path]]:
    """Names in code that a page links to a file, and the files, from the root."""
    pairs = re.findall(r"\[`([^`]+)`\]\(([^)#]+)\)", (ROOT / page).read_text())
    return [(name, ((ROOT / page).parent / file).resolve().relative_to(ROOT)) for name, file in pairs]


def has(path: Path, name: str) -> bool:
    """Whether a Python file has something of that (dotted) name; any other file, that name or path itself."""
    if path.suffix != ".py" or name in (path.name, str(path)):
        return name.rstrip("/") in (path.name, str(path))
    if path.parts[0] == "tests":
        return name in {node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")}
    found = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize(("page", "least"), [("docs/paper.md", 100), ("CONTRIBUTING.md", 20)])
def test_every_name_in_code_is_where_the_page_says(page, least):
    pairs = named(page)
    assert len(pairs) > least
    for name, path in pairs:
        assert has(path, name), f"{path} has no {name}"


def test_every_row_of_the_paper_names_code_and_a_test():
    rows = [line for line in (ROOT / "docs/paper.md").read_text().splitlines() if line.startswith("|")]
    for row in rows:
        if "`](../" in row:
            code, test = row.strip("| ").split(" | ")[-2:]
            assert "](../eftgan/" in code, row
            assert "](../tests/" in test, row


def method_rows() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `([\w-]+)` \|(.+)\|$", (ROOT / "docs/methods.md").read_text(), flags=re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def test_every_method_has_a_row_that_says_what_it_serves():
    rows = method_rows()
    assert set(METHODS) <= set(rows)
    for name, method in METHODS.items():
        said = {"gan": rows[name][-2] == "yes", "classifier": rows[name][-1] == "yes"}
        assert said == {kind: method.suits(kind) for kind in KINDS}, name


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_that_names_its_keys_and_is_linked(name):
    page = (ROOT / "docs/methods" / f"{name}.md").read_text()
    shared = {field.name for field in dataclasses.fields(Method)}
    keys = [field.name for field in dataclasses.fields(METHODS[name]) if field.name not in shared]
    assert [key for key in keys if f"| `{key}` |" not in page] == []
    for heading in ("## Formula", "## Keys", "## Growth", "## Example"):
        assert f"\n{heading}\n" in page
    assert f"](methods/{name}.md)" in method_rows()[name][0]


def test_every_page_of_a_method_is_of_one_that_is_there():
    assert {path.stem for path in (ROOT / "docs/methods").glob("*.md")} == set(METHODS)


@each_document
def test_every_config_file_that_is_named_exists(path):
    names = [name for name in re.findall(r"configs/[\w./*-]+", path.read_text()) if "mine" not in name]
    assert [name for name in names if not list(ROOT.glob(name.rstrip("./")))] == []


@each_document
def test_every_config_name_is_known(path):
    known = {each for kind in KINDS for name in shipped_configs(kind) for each in (name, f"{kind}/{name}")}
    given = re.findall(r"(?:--config|eftgan compare) ([\w/-]+)(?![\w./-])", path.read_text())
    assert [name for name in given if name not in known] == []


@each_guide
def test_every_command_and_option_exists(path):
    for line in code_lines(path.read_text()):
        command = re.match(r"eftgan (\w\S*)(.*)", line.partition(" # ")[0])
        if command is None:
            continue
        verb, rest = command.groups()
        assert verb in VERBS, line
        known = verb_parser(verb, load_verb(verb))._option_string_actions
        assert set(re.findall(r"(?<=\s)--[\w-]+", rest)) <= set(known), line


def test_the_figures_of_the_readme_stand_in_the_results():
    section = (ROOT / "README.md").read_text().partition("\n## Results\n")[2].partition("\n## ")[0]
    known = "\n".join(path.read_text() for path in RESULTS)
    figures = set(re.findall(r"\d+\.\d+", section))
    assert len(figures) > 30
    assert [figure for figure in sorted(figures) if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", known)] == []


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert citation["version"] == eftgan.__version__
    paper = citation["preferred-citation"]
    readme = (ROOT / "README.md").read_text()
    assert f"title     = {{{paper['title']}}}" in readme
    assert f"pages     = {{{paper['start']}-{paper['end']}}}" in readme
    assert [author["family-names"] for author in paper["authors"]] == ["Verma", "Liang", "Mehta", "Rai", "Carin"]
