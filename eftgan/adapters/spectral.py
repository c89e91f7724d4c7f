"""Spectral normalisation beside frozen weights: its power iteration rests where it would move what must stay.

In train mode torch's own iterates at every forward, whether the weight trains or not.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm


class RestingParametrization(_SpectralNorm):
    """Of torch.nn.utils.parametrizations.spectral_norm."""

    def forward(self, weight: Tensor) -> Tensor:
        if not self.training or weight.requires_grad:
            return super().forward(weight)
        self.training = False
        try:
            return super().forward(weight)
        finally:
            self.training = True


class RestingHook(SpectralNorm):
    """Of torch.nn.utils.spectral_norm, which is a hook of the layer's."""

    def compute_weight(self, module: nn.Module, do_power_iteration: bool) -> Any:
        trains = getattr(module, f"{self.name}_orig").requires_grad
        return super().compute_weight(module, do_power_iteration and trains)


def rest_when_frozen(network: nn.Module) -> None:
    """Give the spectral normalisations of a network the form that leaves frozen weights alone."""
    for module in network.modules():
        if type(module) is _SpectralNorm:
            module.__class__ = RestingParametrization
        for hook in module._forward_pre_hooks.values():
            if type(hook) is SpectralNorm:
                hook.__class__ = RestingHook
