"""One progress bar for all long work."""

import sys
from typing import Any

from tqdm import tqdm

LOG_INTERVAL_S = 30.0


def progress_bar(*args: Any, show: bool = True, **kwargs: Any) -> tqdm:
    """tqdm on a terminal; in a log file a line now and then."""
    interval = 0.1 if sys.stderr.isatty() else LOG_INTERVAL_S
    return tqdm(*args, disable=not show, mininterval=interval, maxinterval=max(interval, 10.0), **kwargs)
