"""Ordered parallel map whose workers never outlive the run and never hang it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any

from eftgan.errors import UserError

_BLOCK = 2048  # at most so many results wait in memory for the writer
_function: Callable[[Any], Any]


def ordered_map(function: Callable[[Any], Any], items: Sequence, workers: int) -> Iterator:
    """`map(function, items)` over `workers` processes, in order; 0 workers is this process."""
    if workers == 0:
        yield from map(function, items)
        return
    with ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(function,)) as executor:
        try:
            for first in range(0, len(items), _BLOCK):
                yield from executor.map(_call, items[first : first + _BLOCK], chunksize=16)
        except BrokenProcessPool as error:
            raise UserError(
                "a worker process died, most likely for want of memory; run it again, with fewer workers if it "
                "recurs (python -m data_prep ... --workers 1)"
            ) from error
        finally:
            executor.shutdown(cancel_futures=True)


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent alone deals with it
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)


def _call(item: Any) -> Any:
    return _function(item)
