"""Several workers started by one command, on this machine and on SLURM."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from submitit.core.submission import process_job

from eftgan.commands import main
from eftgan.config import dump
from eftgan.reports.runs import load_runs
from eftgan.studies.launching import without_launch


@pytest.fixture
def config(tmp_path, tiny) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(dump(tiny()))
    return path


def test_a_worker_is_started_with_the_same_words_but_those_that_launch_it():
    words = ["compare", "x", "--local", "4", "--out", "o", "--resources=a=1", "--slurm=2", "--resources", "b=2", "k=v"]
    assert without_launch(words) == ["compare", "x", "--out", "o", "k=v"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--local", "0"], "--local 0: start at least one worker"),
        (["--resources", "timeout_min=3"], "--resources belongs to --slurm N or --local N"),
        (["--slurm", "2", "--resources", "timeout_min"], "give KEY=VALUE"),
        (["--slurm", "2"], "--slurm: "),  # no srun on this machine
    ],
)
def test_mistakes_are_told(config, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(config), "--out", str(tmp_path / "out"), *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_without_submitit_the_line_that_installs_it_is_shown(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SystemExit):
        main(["compare", str(config), "--out", str(tmp_path / "out"), "--local", "2"])
    assert "pip install 'eftgan[cluster]'" in capsys.readouterr().err


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """A stand-in for SLURM's commands: what is submitted is kept in a file."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("srun", "exit 0"), ("sbatch", f"cp $1 {programs}/submitted; echo Submitted batch job 42")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs / "submitted"


@pytest.fixture
def signals():
    """submitit's jobs set handlers of their own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_slurm_gets_an_array_of_workers_and_one_of_them_trains_all(
    config, tmp_path, slurm, signals, monkeypatch, capsys
):
    out = tmp_path / "out"
    resources = "timeout_min=240,gpus_per_node=1,slurm_partition=gpu"
    main(["compare", str(config), "--methods", "eft", "--out", str(out), "--slurm", "3", "--resources", resources])
    assert "jobs 42_0, 42_1, 42_2" in capsys.readouterr().out
    script = slurm.read_text()
    for option in ("--array=0-2", "--partition=gpu", "--time=240", "--gpus-per-node=1", "--job-name=eftgan"):
        assert f"#SBATCH {option}" in script, script
    (logs,) = re.findall(r"-m submitit\.core\._submit (\S+)", script)
    assert "export SUBMITIT_EXECUTOR=slurm" in script
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    for name, value in (("JOB_ID", "43"), ("ARRAY_JOB_ID", "42"), ("ARRAY_TASK_ID", "1")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.chdir("/")  # a job goes back to where it was submitted
    process_job(logs)
    (run,) = load_runs([out / "eft-seed0"])
    assert run.info["finished"]
    assert run.info["command"].endswith(f"--out {out} --worker")
    assert (out / "report.html").is_file()


@pytest.mark.slow
def test_local_workers_share_the_runs(config, tmp_path, capfd):
    out = tmp_path / "out"
    words = ["--methods", "finetune,ewc,eft,separate", "--seeds", "0,1", "--out", str(out), "--local", "3"]
    main(["compare", str(config), *words])
    assert str(out / "report.html") in capfd.readouterr().out
    logs = [path.read_text() for path in (out / ".workers").glob("*.out")]
    begun = [name for text in logs for name in re.findall(rf"^{out}/([\w-]+): image generator", text, re.MULTILINE)]
    methods = ("first", "finetune", "ewc", "eft", "separate")
    assert sorted(begun) == sorted(f"{method}-seed{seed}" for method in methods for seed in (0, 1))
