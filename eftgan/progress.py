"""One progress bar for all long work."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

LOG_INTERVAL_S = 30.0


def progress_bar(iterable: Iterable[Any] | None = None, *, show: bool = True, **options: Any) -> "tqdm[Any]":
    """tqdm on a terminal; in a log file a line now and then."""
    interval = 0.1 if sys.stderr.isatty() else LOG_INTERVAL_S
    return tqdm(iterable, disable=not show, mininterval=interval, maxinterval=max(interval, 10.0), **options)
