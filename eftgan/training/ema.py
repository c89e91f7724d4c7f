"""Exponential moving average of the parameters in training."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class Ema:
    """A slow copy of the trainable parameters of a network; everything else is the network's own."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.names = [name for name, p in network.named_parameters() if p.requires_grad]
        self.live = [p for p in network.parameters() if p.requires_grad]
        self.slow = [p.detach().clone() for p in self.live]

    @torch.no_grad()
    def update(self) -> None:
        """slow <- decay * slow + (1 - decay) * live."""
        torch._foreach_lerp_(self.slow, [p.detach() for p in self.live], 1.0 - self.decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The network computes with the slow parameters inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for live, slow in zip(self.live, self.slow, strict=True):
            held = live.detach().clone()
            live.copy_(slow)
            slow.copy_(held)

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Give the network the slow parameters: the end of a task."""
        torch._foreach_copy_([p.detach() for p in self.live], self.slow)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.slow, strict=True))

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, slow in zip(self.names, self.slow, strict=True):
            slow.copy_(state[name])
