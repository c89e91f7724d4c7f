"""Which items to take of a long sequence."""

import numpy as np


def spread(length: int, limit: int | None) -> np.ndarray:
    """Indices of `limit` of `length` items, evenly spaced, so that sorted sets keep all their classes."""
    if limit is None or limit >= length:
        return np.arange(length)
    return np.arange(limit) * length // limit
