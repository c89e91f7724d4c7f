"""Faults at chosen points of a real process: it is killed, signalled, or its disk is full from then on.

Everything that a program does to files, and every optimizer step, is counted. A plan names the count at which the
fault comes; without one, the points are only written down. Nothing in the product knows of this.
"""

import errno
import json
import os
import pathlib
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

ENVIRONMENT = "EFTGAN_FAULT_PLAN"
DISK_FAULTS = {"ENOSPC": errno.ENOSPC, "EROFS": errno.EROFS}


@dataclass(frozen=True)
class Plan:
    """What happens, and before which point; points count from 0."""

    at: int | None = None
    fault: str = "SIGKILL"  # a signal, or the error of every write from that point on
    rank: str = "0"  # of the process, where there are several
    log: str | None = None  # a file for the name of every point passed

    def environment(self) -> dict[str, str]:
        return {ENVIRONMENT: json.dumps(asdict(self))}


class Points:
    """Counts points and brings the fault."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.passed = plan, 0
        self._log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if plan.log else None

    def reach(self, name: str, *, writes: bool = False) -> None:
        """Pass one point; `writes` where a full disk would be noticed."""
        if self._log is not None:
            os.write(self._log, f"{name}\n".encode())
        here, self.passed = self.passed, self.passed + 1
        if self.plan.at is None or here < self.plan.at:
            return
        if self.plan.fault in DISK_FAULTS:
            if writes:
                number = DISK_FAULTS[self.plan.fault]
                raise OSError(number, os.strerror(number))
        elif here == self.plan.at:
            os.kill(os.getpid(), signal.Signals[self.plan.fault])


def install(plan: Plan) -> None:
    """Count the points of this process."""
    if os.environ.get("RANK", "0") != plan.rank:
        return
    points = Points(plan)
    for owner, name in ((os, "replace"), (os, "rename"), (os, "fsync"), (os, "unlink"), (os, "mkdir")):
        _surround(owner, name, points)
    _write_in_halves(points)
    _count_steps(points)


def _surround(owner: Any, name: str, points: Points) -> None:
    """A point before the call and one after it."""
    original: Callable = getattr(owner, name)

    def surrounded(*args: Any, **options: Any) -> Any:
        points.reach(f"before {name}", writes=name in ("replace", "fsync", "mkdir"))
        result = original(*args, **options)
        points.reach(f"after {name}")
        return result

    setattr(owner, name, surrounded)


def _write_in_halves(points: Points) -> None:
    """A point in the middle of every file that is written at once."""

    def write_bytes(path: pathlib.Path, content: bytes) -> int:
        half = len(content) // 2
        with open(path, "wb") as handle:
            handle.write(content[:half])
            handle.flush()
            points.reach("within write", writes=True)
            handle.write(content[half:])
        return len(content)

    pathlib.Path.write_bytes = write_bytes


def _count_steps(points: Points) -> None:
    """A point before every optimizer step of every network, and before every picture that is decoded."""
    import PIL.Image
    import torch

    def counted(call: Callable, name: str) -> Callable:
        def reached(*args: Any, **options: Any) -> Any:
            points.reach(name)
            return call(*args, **options)

        return reached

    for optimizer in (torch.optim.Adam, torch.optim.SGD):
        optimizer.step = counted(optimizer.step, "step")
    PIL.Image.open = counted(PIL.Image.open, "decode")


def install_from_environment() -> None:
    if ENVIRONMENT in os.environ and "RANK" in os.environ:  # the launcher itself is spared
        install(Plan(**json.loads(os.environ[ENVIRONMENT])))
