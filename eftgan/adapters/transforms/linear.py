"""EFT at a fully connected layer (section 2.1.2 of the paper): h = E f with a diagonal E."""

import torch
from torch import Tensor, nn

from eftgan.adapters.layers import Layer, NotMergeable, computes_as_torch, with_weights
from eftgan.adapters.transforms.base import Flops, Option, Transform


class LinearTransform(Transform):
    """e, the diagonal of one task at one fully connected layer: (..., K) -> (..., K).

    In `residual` form e - 1 is held: weight decay then pulls e to one.
    """

    def __init__(self, features: int, residual: bool = False) -> None:
        super().__init__()
        self.residual = residual
        self.scale = nn.Parameter(torch.empty(features))
        self.set_identity()

    def set_identity(self) -> None:
        nn.init.constant_(self.scale, 0.0 if self.residual else 1.0)

    def reset_parameters(self) -> None:
        """Random scales around one: a diagonal has no PyTorch initialisation of its own."""
        nn.init.normal_(self.scale, 0.0 if self.residual else 1.0, 0.02)

    @property
    def diagonal(self) -> Tensor:
        return self.scale + 1 if self.residual else self.scale

    def forward(self, f: Tensor) -> Tensor:
        return f * self.diagonal

    def describe(self) -> dict[str, Option]:
        return {"kind": "linear", "form": "diagonal"}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        return Flops(out.numel(), out.numel())

    def merged(self, layer: Layer) -> nn.Module:
        """The layer with scaled rows."""
        if not computes_as_torch(layer):
            raise NotMergeable(f"a scale cannot be merged into {layer}, which has its own forward")
        bias = None if layer.bias is None else layer.bias * self.diagonal
        return with_weights(layer, layer.weight * self.diagonal[:, None], bias)
