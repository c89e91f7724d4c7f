"""Fifty tasks in one process leave memory, open files and the time of a step as they were."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_fifty_tasks_do_not_wear_the_process_out(tmp_path):
    command = [sys.executable, "-m", "benchmarks.soak", "--tasks", "50", "--out", str(tmp_path / "soak")]
    ended = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
