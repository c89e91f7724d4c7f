"""A full disk or a folder that cannot be written: one message, exit code 2, the last good state whole."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults import Plan
from harness import differences

from eftgan.runfolder import RunFolder
from eftgan.training.checkpoint import load_state


def assert_one_message(code: int, err: str) -> None:
    assert code == 2, err
    assert err.count("error: ") == 1, err
    assert "Traceback" not in err


def test_a_disk_that_is_full_from_some_point_on_stops_the_run_whole(server, references, tmp_path):
    reference = references["train"]
    steps = [at for at, name in enumerate(reference.points) if name == "step"]
    ended = server.run(reference.command, tmp_path, Plan(steps[len(steps) // 2], "ENOSPC"))
    assert_one_message(ended.code, ended.err)
    assert "No space left" in ended.err
    assert load_state(RunFolder(tmp_path / "run")) is not None
    server.run_to_the_end(reference.command, tmp_path, [])
    assert differences(tmp_path, reference.after) == []


def test_a_disk_that_is_read_only_from_the_start_is_told_at_once(server, references, tmp_path):
    ended = server.run(references["train"].command, tmp_path, Plan(0, "EROFS"))
    assert_one_message(ended.code, ended.err)


@pytest.mark.parametrize("program", ["learn-eft", "evaluate", "prepare"])
def test_other_programs_stop_the_same_way(server, references, tmp_path, program):
    reference = references[program]
    place = Path(shutil.copytree(reference.before, tmp_path / "place"))
    ended = server.run(reference.command, place, Plan(len(reference.points) // 2, "ENOSPC"))
    assert_one_message(ended.code, ended.err)
    server.run_to_the_end(reference.command, place, [])
    assert differences(place, reference.after) == []


@pytest.mark.slow
def test_the_real_command_line_meets_a_limit_on_file_sizes(references, tmp_path):
    """The system itself refuses to write more than 64 kB to any file: states are larger."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    command = [sys.executable, *references["train"].command]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit)
    assert_one_message(ended.returncode, ended.stderr)
    assert "File too large" in ended.stderr
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, where the system lets us mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("no right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_small_disk_keeps_the_last_good_state(server, references, small_disk):
    reference = references["train"]
    ended = server.run(reference.command, small_disk)
    assert_one_message(ended.code, ended.err)
    assert "No space left" in ended.err
    assert load_state(RunFolder(small_disk / "run")) is not None
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    server.run_to_the_end(reference.command, small_disk, [])
    assert differences(small_disk, reference.after) == []


def test_a_read_only_disk_is_told(server, references, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ended = server.run(references["train"].command, small_disk)
    assert_one_message(ended.code, ended.err)
    assert "Read-only" in ended.err
