"""The list of verbs: one file each, quick to show, with examples that can be typed."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import eftgan
from eftgan.commands import VERBS, load_verb, main, verb_parser

from ..conftest import ROOT


def test_every_file_of_the_folder_is_a_verb():
    files = {path.stem for path in (ROOT / "eftgan" / "commands").glob("*.py")} - {"__init__"}
    assert files == set(VERBS.values())


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_says_what_it_does_and_its_examples_can_be_typed(name):
    verb = load_verb(name)
    assert re.fullmatch(r"[^\n]{10,90}\.", verb.HELP)
    for line in verb.EXAMPLES.splitlines():
        command = re.sub(r"^(accelerate launch|torchrun --nproc_per_node \d+) -m ", "", re.split(r" {2,}", line)[0])
        program, first, *words = shlex.split(command)
        assert (program, first) == ("eftgan", name)
        verb_parser(name, verb).parse_intermixed_args(words)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"], ["sample", "--help"], ["dance"]])
def test_help_needs_no_torch(words):
    script = (
        "import sys; from eftgan.commands import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'numpy', 'accelerate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, *words], check=True, cwd=ROOT, capture_output=True)


def test_help_lists_every_verb_with_its_line_and_an_example(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name in VERBS:
        assert f"{name} {load_verb(name).HELP}" in shown
        assert f" eftgan {name} " in shown


def test_a_verbs_help_ends_with_its_examples(capsys):
    with pytest.raises(SystemExit):
        main(["sample", "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: eftgan sample")
    assert shown.rstrip().endswith(load_verb("sample").EXAMPLES.splitlines()[-1])
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "classifier: finetune, ewc, lwf, eft, separate" in capsys.readouterr().out


def test_the_version_is_shown_and_the_script_points_here(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"eftgan {eftgan.__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"eftgan": "eftgan.commands:main"}


@pytest.mark.parametrize("words", [[], ["--"], ["--", "info", "x"], ["--bogus", "info"]])
def test_without_a_verb_nothing_is_done(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("error:") == 1


def test_python_m_eftgan_is_the_same_program(tmp_path):
    command = [sys.executable, "-m", "eftgan", "info", "nowhere"]
    ended = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: nowhere: no run there")
    assert Path(eftgan.__file__).with_name("py.typed").is_file()
