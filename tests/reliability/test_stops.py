"""Ctrl-C and SIGTERM save first, say how to continue, and that command goes on to the same bits."""

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import Plan
from harness import ROOT, differences

CODES = {"SIGINT": 130, "SIGTERM": 143}


def continuation(err: str) -> list[str]:
    """The command that the goodbye names, ready to be run."""
    line = next(line for line in err.splitlines() if line.startswith("Continue with: "))
    return shlex.split(line.removeprefix("Continue with: python "))


@pytest.mark.parametrize(
    ("program", "fault", "place"),
    [
        ("train", "SIGINT", "first step"),
        ("train", "SIGTERM", "last step"),
        ("train", "SIGINT", "report"),
        ("learn-si", "SIGTERM", "second task"),
    ],
)
def test_a_signal_stops_politely_and_the_named_command_continues(server, references, tmp_path, program, fault, place):
    reference = references[program]
    steps = [at for at, name in enumerate(reference.points) if name == "step"]
    places = {"first step": steps[0], "last step": steps[-1], "report": len(reference.points) - 3}
    at = (places | {"second task": steps[len(steps) // 2 + 1]})[place]
    ended = server.run(reference.command, tmp_path, Plan(at, fault))
    assert ended.code == CODES[fault], ended.err
    assert "Traceback" not in ended.err
    assert list(tmp_path.glob("run/state/*.safetensors"))
    again = continuation(ended.err)
    assert again == reference.command
    server.run_to_the_end(again, tmp_path, [])
    assert differences(tmp_path, reference.after) == []


def stop_after_first_state(words: list[str], folder: Path, number: signal.Signals) -> str:
    """Start a program, send it a signal as soon as it has saved once; what it said then."""
    started = subprocess.Popen([sys.executable, *words], cwd=folder, stderr=subprocess.PIPE, text=True)
    while not list(folder.glob("**/state/*.safetensors")) and started.poll() is None:
        time.sleep(0.02)
    started.send_signal(number)
    _, err = started.communicate(timeout=120)
    assert started.returncode == CODES[number.name], err
    assert "Traceback" not in err
    return err


@pytest.mark.slow
def test_a_comparison_stops_politely_as_well(tmp_path):
    words = ["compare", str(ROOT / "configs/gan/shapes.yaml"), "training.save_every_steps=1", "--methods", "eft"]
    err = stop_after_first_state(["-m", "eftgan", *words], tmp_path, signal.SIGINT)
    assert f"Continue with: python -m eftgan {shlex.join(words)}" in err


def test_the_real_command_line_stops_and_continues(server, references, tmp_path):
    """No fork: `python train_gan.py` and a signal from outside."""
    reference = references["train"]
    stop_after_first_state([*reference.command, "training.save_every_steps=1"], tmp_path, signal.SIGTERM)
    server.run_to_the_end(reference.command, tmp_path, [])
    kept = [name for name in reference.after if "report" not in name]  # it was begun with another word
    assert [name for name in differences(tmp_path, reference.after) if name in kept] == []


def test_a_run_that_was_given_a_further_task_is_continued_by_the_same_words(server, references, tmp_path):
    """`tasks+=` in a repeated command does not add the task twice."""
    reference = references["train"]
    server.run_to_the_end(reference.command, tmp_path, [])
    script = reference.command[0]
    words = ["--resume", "run", "tasks+={name: stripes, data: 'shapes:stripes', limit: 16, steps: 2}"]
    ended = server.run([script, *words], tmp_path, Plan(25))
    assert ended.code == -9, ended.err
    server.run_to_the_end([script, *words], tmp_path, [])
    assert Path(tmp_path / "run/tasks/03-stripes.safetensors").exists()
    assert not Path(tmp_path / "run/tasks/04-stripes.safetensors").exists()
