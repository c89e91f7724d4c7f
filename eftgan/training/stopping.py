"""A polite stop: Ctrl-C or SIGTERM finishes the step, saves, and says how to go on."""

import signal
import threading
from types import FrameType, TracebackType

from accelerate import Accelerator


class Stopped(Exception):
    """A signal asked for a stop and the state is saved."""


class StopSignal:
    """Inside the block, the first SIGINT or SIGTERM is only noted; a second one acts as usual."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.noted = False
        self._before: dict[int, object] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted = True
        signal.signal(number, self._before[number])

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._note) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """Whether any process was asked to stop; all processes get the same answer."""
        if self.accelerator.num_processes == 1:
            return self.noted
        if self.noted:
            self.accelerator.set_trigger()
        return self.accelerator.check_trigger()
