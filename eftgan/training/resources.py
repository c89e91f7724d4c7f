"""How many processes and threads a run computes with: part of the run, since sums in another order round otherwise."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from eftgan.errors import UserError
from eftgan.runfolder import RunFolder
from eftgan.training.experiment import Experiment


@dataclass(frozen=True)
class Resources:
    """What a run computes with. `run.json` keeps it, and the run goes on with the same."""

    processes: int
    threads: int  # CPU threads of each process
    threads_before: int  # what this process has without it, from the machine or the launcher

    def __str__(self) -> str:
        return f"{_count(self.processes, 'process', 'processes')}, {_count(self.threads, 'thread', 'threads')}" + (
            " each" if self.processes > 1 else ""
        )

    @property
    def facts(self) -> dict[str, int]:
        return {"processes": self.processes, "threads": self.threads}

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside the block, this process computes with as many threads."""
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(self.threads_before)


def resources_for(experiment: Experiment, folder: RunFolder, processes: int) -> Resources:
    """What the run goes on with; another number of processes than it was begun with is refused unless asked for.

    Threads are those that the run was begun with, whatever launcher or OMP_NUM_THREADS say now: the same command
    under another launcher then gives the same bits. `training.threads` and `training.processes` say otherwise.
    """
    known, asked = _known(folder.read_facts()), experiment.training
    if asked.processes not in (None, processes):
        raise UserError(
            f"training.processes={asked.processes}, but {_count(processes, 'process was', 'processes were')} started; "
            f"start as many (torchrun --nproc_per_node {asked.processes} ...), or set training.processes={processes}"
        )
    began = known.get("processes", processes)
    unfinished = len(folder.finished(experiment.task_names)) < len(experiment.task_names)
    if began != processes and asked.processes is None and unfinished:
        raise UserError(
            f"{folder.path}: began with {_count(began, 'process', 'processes')}, and now there "
            f"{'is' if processes == 1 else 'are'} {processes}: each has its own share of every batch, so the result "
            f"would be another; start {began} (torchrun --nproc_per_node {began} ...), or say training.processes="
            f"{processes} to go on with {processes}"
        )
    offered = torch.get_num_threads()
    return Resources(processes, asked.threads or known.get("threads", offered), offered)


def changes_of(folder: RunFolder, resources: Resources) -> dict[str, list[int]]:
    """What a run goes on with that it was not begun with: before and after."""
    known = _known(folder.read_facts())
    now = resources.facts
    return {f"training.{key}": [known[key], now[key]] for key in known if known[key] != now[key]}


def _known(facts: Mapping[str, Any]) -> dict[str, int]:
    """What the run computed with before; nothing of a run from before this was written down."""
    known = {key: facts.get(key) for key in ("processes", "threads")}
    return {key: value for key, value in known.items() if isinstance(value, int) and value > 0}


def asked_in_vain() -> bool:
    """Whether `accelerate launch` was asked for several processes and started one, as it does on CPUs without MPI."""
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_ADDR" in os.environ
    return launched and "WORLD_SIZE" not in os.environ and "PMI_SIZE" not in os.environ


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
