"""The same through real command lines, training and a command."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ([str(ROOT / "train_gan.py"), "tasks.0.name=../x"], "not usable"),
    (["-m", "eftgan", "report", "nowhere"], "no run folder"),
]


@pytest.mark.parametrize(("command", "message"), COMMANDS)
def test_a_mistake_is_one_message_and_exit_code_2(tmp_path, command, message):
    ended = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
