"""What the package says of itself to installers, the package index and code hosts agrees with itself."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import eftgan

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "eftgan/__init__.py"
    assert f"## {eftgan.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_every_python_that_the_package_names_is_tried_by_the_workflow():
    assert len(PYTHONS) == 3
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    job = WORKFLOWS["ci"]["jobs"]["run"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (ROOT / "README.md").read_text()


def test_a_release_is_published_without_a_secret_and_only_after_the_tests():
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert set(jobs["publish"]["needs"]) == {"ci", "build"}
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert "secrets." not in str(WORKFLOWS)


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_forms_for_issues_have_what_the_host_asks_for(path):
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert "blank_issues_enabled" in form
        return
    assert form["name"]
    assert form["description"]
    for field in form["body"]:
        assert field["type"] == "textarea"
        assert field["id"]
        assert field["attributes"]["label"]


def shown_readme() -> str:
    """The README as the package index shows it, by the substitutions of pyproject.toml."""
    text = (ROOT / "README.md").read_text()
    for each in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    return text


def test_the_description_on_the_package_index_has_no_link_that_leads_nowhere():
    text = shown_readme()
    assert "*Training* explains learning rates" in text
    assert (
        re.findall(r"\]\((?!https?:|#)[^)]*\)", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)) == []
    )
    assert "](https://arxiv.org/abs/2103.13558)" in text
    assert "![" not in text
    assert "all from one generator: `eftgan sample" not in text  # the caption of a picture that is not there
