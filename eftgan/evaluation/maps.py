"""A network's feature maps as vectors: early layers see what all images have, late ones what tells classes apart."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class SeenMaps:
    """Where `last_maps` leaves what a forward computed: of the last map of every size, in the order of the sizes."""

    def __init__(self) -> None:
        self.means: dict[tuple[int, ...], Tensor] = {}  # over the pixels
        self.deviations: dict[tuple[int, ...], Tensor] = {}
        self.correlations: dict[tuple[int, ...], Tensor] = {}  # of the largest map only: the first that a network makes
        self.makers: dict[tuple[int, ...], nn.Module] = {}
        self.hooks: dict[nn.Module, RemovableHandle] = {}

    def before(self, output: Tensor) -> Tensor:
        """The means of every size but the smallest, and the network's output (B, F)."""
        means = list(self.means.values())[:-1]
        self.means = {}
        self._watch_makers()
        return torch.cat([*means, output], dim=1)

    def statistics(self, output: Tensor) -> Tensor:
        """The same, the deviations of every size, and the correlations, as far as they were asked for."""
        further = [*self.deviations.values(), *self.correlations.values()]
        self.deviations, self.correlations = {}, {}
        return torch.cat([self.before(output), *further], dim=1)

    def _watch_makers(self) -> None:
        """Leave modules alone whose maps are not the last of their size: most of them, as a forward has shown."""
        kept = set(self.makers.values())
        for module in [module for module in self.hooks if module not in kept]:
            self.hooks.pop(module).remove()


@contextlib.contextmanager
def last_maps(network: nn.Module, *, deviations: bool = False, correlations: bool = False) -> Iterator[SeenMaps]:
    """Note the feature maps (B, C, H, W) of every forward inside the block; works for any network."""
    seen = SeenMaps()

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2:].numel() > 1:
            size = tuple(output.shape[2:])
            seen.makers[size], seen.means[size] = module, output.mean((2, 3))
            if deviations:
                seen.deviations[size] = output.std((2, 3))
            if correlations and size == next(iter(seen.makers)):
                seen.correlations[size] = channel_correlations(output)

    seen.hooks = {m: m.register_forward_hook(note) for m in network.modules() if not list(m.children())}
    try:
        yield seen
    finally:
        for hook in seen.hooks.values():
            hook.remove()


def channel_correlations(maps: Tensor) -> Tensor:
    """Of every two channels of (B, C, H, W), over the pixels (B, C (C - 1) / 2): what describes textures.

    A channel that is the same everywhere, but for rounding, goes with no other.
    """
    flat = maps.flatten(2)
    means = flat.mean(2, keepdim=True)
    covariances = (flat - means) @ (flat - means).mT
    deviations = covariances.diagonal(dim1=1, dim2=2).sqrt()
    rounding = flat.shape[2] ** 0.5 * means[:, :, 0].abs() * torch.finfo(maps.dtype).eps
    scales = torch.where(deviations > rounding, 1 / deviations, 0.0)
    upper = torch.triu_indices(maps.shape[1], maps.shape[1], offset=1)
    return (covariances * scales[:, :, None] * scales[:, None, :])[:, upper[0], upper[1]]
