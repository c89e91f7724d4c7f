"""A run killed in the middle leaves nothing that looks finished, and the same command then makes the same set."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def start(*arguments):
    command = [sys.executable, "-m", "data_prep", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_killed_while_writing_then_run_again(prep, picture, tmp_path):
    source = picture(tmp_path / "raw/0.jpg", size=(200, 200))
    for number in range(1, 2000):
        os.link(source, tmp_path / f"raw/{number}.jpg")
    output = tmp_path / "sets" / "x.lmdb"
    arguments = ("folder", tmp_path / "raw", output, "--size", 32, "--workers", 2)

    def writing():
        parts = list(output.parent.glob(".x.lmdb.*.tmp/data.mdb"))
        return any(part.stat().st_size > 500_000 for part in parts)

    process = start(*arguments)
    wait_until(writing)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not output.exists()
    assert list(output.parent.iterdir())
    wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and alive(pid) for pid in workers))

    assert prep(*arguments)[0] == 0
    assert [entry.name for entry in output.parent.iterdir()] == ["x.lmdb"]
    assert prep(*arguments[:2], tmp_path / "whole.lmdb", *arguments[3:])[0] == 0
    assert (output / "data.mdb").read_bytes() == (tmp_path / "whole.lmdb" / "data.mdb").read_bytes()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_worker_ends_the_run_with_a_message(picture, tmp_path):
    source = picture(tmp_path / "raw/0.jpg", size=(200, 200))
    for number in range(1, 2000):
        os.link(source, tmp_path / f"raw/{number}.jpg")
    process = start("folder", tmp_path / "raw", tmp_path / "x.lmdb", "--workers", 2)
    wait_until(lambda: list(tmp_path.glob(".x.lmdb.*")) and len(children(process.pid)) == 2)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "a worker process died" in err
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["raw"]
