"""Starting several workers of one command, on this machine or on a cluster: what `--local` and `--slurm` do."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eftgan.errors import UserError

LONG_MIN = 30 * 24 * 60  # no limit of time on one's own machine: a month
TAIL = 5  # lines of a failed worker's log that are shown
_WITH_VALUE = ("--local", "--slurm", "--resources")


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """What starts several workers; they need the extra `cluster`."""
    group = parser.add_argument_group("several workers (pip install 'eftgan[cluster]')")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--local", type=int, metavar="N", help="start N workers on this machine, and wait for them")
    where.add_argument("--slurm", type=int, metavar="N", help="submit N workers to SLURM as an array of jobs")
    group.add_argument(
        "--resources",
        metavar="KEY=VALUE,...",
        help="of each job, as submitit names them: timeout_min=240,gpus_per_node=1,slurm_partition=gpu",
    )


@dataclass(frozen=True)
class Worker:
    """What a job runs: the command line of one worker, in the folder where it was typed."""

    words: tuple[str, ...]
    folder: str

    def __call__(self) -> int:
        """The exit code."""
        from eftgan.commands import main

        os.chdir(self.folder)
        try:
            main(self.words)
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return 0

    def checkpoint(self) -> Any:
        """What a job that is preempted or out of time is queued as again: the same, which goes on."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def launch(args: argparse.Namespace, further: Sequence[str], left: Callable[[], int]) -> bool:
    """Start the workers that the options ask for; false where they ask for none.

    further: words that make a worker of the command. left: how many runs are not finished.
    """
    count = args.local if args.local is not None else args.slurm
    if count is None:
        if args.resources:
            raise UserError("--resources belongs to --slurm N or --local N")
        return False
    if count < 1:
        raise UserError(f"--{'slurm' if args.local is None else 'local'} {count}: start at least one worker")
    worker = Worker((*without_launch(args.words), *further), os.getcwd())
    jobs = _submit(worker, count, "local" if args.local else "slurm", args.out / ".workers", _resources(args.resources))
    print(f"{count} workers; their logs: {args.out / '.workers'}", flush=True)
    if args.slurm:
        print(f"jobs {', '.join(job.job_id for job in jobs)}; squeue shows them, scancel stops them")
    else:
        _wait(jobs, left)
    return True


def without_launch(words: Sequence[str]) -> list[str]:
    """The words of a command without those that launch it."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest)
        elif not word.startswith(tuple(f"{option}=" for option in _WITH_VALUE)):
            kept.append(word)
    return kept


def _resources(text: str | None) -> dict[str, Any]:
    from eftgan.config import parse_yaml

    pairs = [word.partition("=") for word in text.split(",")] if text else []
    if not all(key.strip() and value for key, _, value in pairs):
        raise UserError(f"--resources {text!r}: give KEY=VALUE,..., for example timeout_min=240,gpus_per_node=1")
    return {key.strip(): parse_yaml(value, f"--resources {key}") for key, _, value in pairs}


def _submit(worker: Worker, count: int, where: str, logs: Path, resources: dict[str, Any]) -> list[Any]:
    try:
        import submitit
    except ImportError as error:
        raise UserError(f"--{where}: submitit is not installed; pip install 'eftgan[cluster]'") from error
    try:
        if where == "local":
            return _submit_here(submitit.LocalExecutor(folder=logs), worker, count, resources)
        executor = submitit.AutoExecutor(folder=logs, cluster="slurm")
        executor.update_parameters(name="eftgan", **resources)
        with executor.batch():
            jobs = [executor.submit(worker) for _ in range(count)]
        return jobs
    except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
        raise UserError(f"--{where}: {error}") from error


def _submit_here(executor: Any, worker: Worker, count: int, resources: dict[str, Any]) -> list[Any]:
    """Workers share the cores of this machine, and take turns on its GPUs."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    gpus, jobs = _gpus(), []
    for number in range(count):
        own = {"gpus_per_node": 1, "visible_gpus": [gpus[number % len(gpus)]]} if gpus else {}
        executor.update_parameters(**{"timeout_min": LONG_MIN, **own, **resources})
        jobs.append(executor.submit(worker))
    return jobs


def _gpus() -> list[int]:
    """The numbers of this machine's GPUs, as far as they may be used."""
    import torch

    allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    numbered = [int(word) for word in allowed if word.strip().isdigit()]
    return numbered or list(range(torch.cuda.device_count()))


def _wait(jobs: Sequence[Any], left: Callable[[], int]) -> None:
    """Until all workers have ended; refused are those that ended badly, with the last lines of their logs."""
    from eftgan.progress import progress_bar

    total = left()
    with progress_bar(total=total, desc="runs", unit="run") as bar:
        while not all(job.done() for job in jobs):
            time.sleep(1)
            bar.update(total - left() - bar.n)
    failed = [job for job in jobs if _code(job) != 0]
    for job in failed:
        lines = Path(job.paths.stderr).read_text().splitlines() if Path(job.paths.stderr).exists() else []
        print(f"worker {job.job_id} failed:", *lines[-TAIL:], sep="\n  ", file=sys.stderr)
    if failed and left():
        raise UserError(f"{len(failed)} of {len(jobs)} workers failed, see above; the same command goes on")


def _code(job: Any) -> int:
    """A worker's exit code; one that was killed left none."""
    try:
        return int(job.result())
    except Exception:
        return 1
