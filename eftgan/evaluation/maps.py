"""A network's feature maps as vectors: early layers see what all images have, late ones what tells classes apart."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class SeenMaps:
    """Where `last_maps` leaves what a forward computed."""

    def __init__(self) -> None:
        self.by_size: dict[tuple[int, ...], Tensor] = {}  # in the order in which the sizes came up

    def before(self, output: Tensor) -> Tensor:
        """The last map of every size but the smallest, averaged over its pixels, and the network's output (B, F)."""
        maps = list(self.by_size.values())[:-1]
        self.by_size = {}
        return torch.cat([*maps, output], dim=1)


@contextlib.contextmanager
def last_maps(network: nn.Module) -> Iterator[SeenMaps]:
    """Note the feature maps (B, C, H, W) of every forward inside the block; works for any network."""
    seen = SeenMaps()

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2:].numel() > 1:
            size = tuple(output.shape[2:])
            seen.by_size[size] = output.mean((2, 3))

    hooks = [m.register_forward_hook(note) for m in network.modules() if not list(m.children())]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
