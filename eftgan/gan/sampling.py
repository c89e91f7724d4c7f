"""Drawing from a generator: fixed noise, eval mode, uint8 images."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from eftgan.adapters.modes import evaluating
from eftgan.data.augmentation import to_uint8
from eftgan.data.streams import stream

GRID_IMAGES = 16


def fixed_noise(seed: int, task: str, z_dim: int) -> Tensor:
    """The noise of a task's sample grids: the same after every task, so that grids can be compared."""
    return torch.randn(GRID_IMAGES, z_dim, generator=stream(seed, task, "grid"))


@torch.no_grad()
def generate(network: nn.Module, z: Tensor, batch: int = 64) -> Iterator[Tensor]:
    """Finest images of a task's plain network (or of one with a task selected) as uint8 batches on the CPU."""
    device = next(network.parameters()).device
    with evaluating(network):
        for chunk in z.split(batch):
            yield to_uint8(network(chunk.to(device))[-1]).cpu()
