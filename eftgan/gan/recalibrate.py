"""BatchNorm statistics of averaged weights, measured instead of taken over from training.

Running statistics follow the last few batches of the weights in training; the average of many steps' weights, which
samples are drawn with, has others.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from eftgan.adapters import PARTS, task_modules, using_task
from eftgan.adapters.modes import evaluating


@torch.no_grad()
def recalibrate(network: nn.Module, task: str, batches: Iterable[Tensor]) -> None:
    """The task's running statistics become the mean of the batches' own; nothing else changes."""
    own = [module for part in PARTS for module in task_modules(network, task, part)]
    norms = [norm for module in own for norm in module.modules() if isinstance(norm, _BatchNorm)]  # of gates as well
    momenta = [norm.momentum for norm in norms]
    with using_task(network, task), evaluating(network):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean over all batches
            norm.train()
        for batch in batches:
            network(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
