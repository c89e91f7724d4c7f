"""Memory that a step frees is there for the next one."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from eftgan.training.memory import keep_freed_memory
print(keep_freed_memory())
torch.set_num_threads(1)
def step():
    maps = [torch.full((2**20,), 1.0) for _ in range(24)]  # 4 MB each: what a layer's features take
step(); step(); step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**environment: str) -> tuple[str, int]:
    """What keep_freed_memory answered, and how many pages ten steps had to fetch."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_", "LD_PRELOAD"))}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=own | environment, capture_output=True, text=True, check=True)
    answer, count = done.stdout.split()
    return answer, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_a_step_finds_the_memory_of_the_last_one_in_place():
    answer, count = page_faults()
    assert answer == "True"
    assert count < 1000  # of 245,760 pages that the ten steps write; without the setting it is all of them on most runs


def test_somebodys_own_settings_stay():
    assert page_faults(MALLOC_ARENA_MAX="2")[0] == "False"
