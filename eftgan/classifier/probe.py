"""A look at a finished task of a classifier: its training images without augmentation, in random order."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eftgan.adapters.modes import evaluating
from eftgan.data.pixels import Pixels
from eftgan.data.splits import LabelledTask
from eftgan.data.streams import stream
from eftgan.methods import Probe

PROBE_BATCH = 256


def classifier_probe(network: nn.Module, task: LabelledTask, pixels: Pixels, seed: int) -> Probe:
    """Losses are cross-entropies under the task's own labels."""
    order = torch.randperm(len(task.train), generator=stream(seed, task.name, "probe"))

    def batches(size: int) -> Iterator[tuple[Tensor, Tensor]]:
        device = next(network.parameters()).device
        for chunk in order.split(size):
            images, labels = task.train.fetch(chunk)
            yield pixels(images.to(device)), labels.to(device)

    def losses(role: str) -> Iterator[Tensor]:
        with evaluating(network):
            for inputs, labels in batches(1):
                yield F.cross_entropy(network(inputs), labels)

    def labelled(role: str) -> Iterator[tuple[Tensor, Tensor]]:
        with evaluating(network):
            yield from batches(PROBE_BATCH)

    return Probe(losses, lambda role: (inputs for inputs, _ in batches(PROBE_BATCH)), labelled)
