"""Eval mode for a while."""

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[nn.Module]:
    """Eval mode inside the block; afterwards every module has its own mode again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield network
    finally:
        for module, mode in modes.items():
            module.training = mode
