"""A polite stop: Ctrl-C or SIGTERM finishes the step, saves, and says how to go on."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from accelerate import Accelerator


class Stopped(Exception):
    """A signal asked for a stop and the state is saved."""

    signal: int = signal.SIGTERM  # the one that this process got; SIGTERM where another process got it


class StopSignal:
    """Inside the block, the first SIGINT or SIGTERM is only noted; a second one acts as usual."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.noted = False
        self._signal = Stopped.signal
        self._before: dict[int, Any] = {}
        self._stop_with = ""  # where nothing has to be finished: the message to stop with at once

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted, self._signal = True, number
        signal.signal(number, self._before[number])
        if self._stop_with:
            raise Stopped(self._stop_with)

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._note) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, Stopped):
            error.signal = self._signal

    @contextlib.contextmanager
    def at_once(self, message: str) -> Iterator[None]:
        """Inside the block all that matters is saved: a signal, or one noted before, stops with `message`."""
        if self.requested():
            raise Stopped(message)
        self._stop_with = message
        try:
            yield
        finally:
            self._stop_with = ""

    def requested(self) -> bool:
        """Whether any process was asked to stop; all processes get the same answer."""
        if self.accelerator.num_processes == 1:
            return self.noted
        if self.noted:
            self.accelerator.set_trigger()
        return self.accelerator.check_trigger()
