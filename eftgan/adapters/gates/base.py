"""Gates: a factor for every channel of a layer's output, behind the BatchNorm where one follows.

A BatchNorm behind a gate would undo it, and would shift a closed channel away from zero. So the bank of a gate goes
around the norm that alone reads the layer's output, its bank included, and around the layer where there is none.
"""

from typing import ClassVar

from torch import Tensor, nn

from eftgan.adapters.transforms import Flops, Transform


class Gate(Transform):
    """One task's gate behind one layer: (B, K, ...) -> (B, K, ...).

    `axes`: how many axes stand behind the channels, 2 for images; with 0 the channels are the last axis, as a linear
    layer has them. `normed`: a BatchNorm stands before the gate. The neutral state is an open gate: every factor is 1.
    """

    on_linear: ClassVar[bool] = True  # whether linear layers are gated, or convolutions alone

    def __init__(self, channels: int, axes: int, normed: bool = False) -> None:
        super().__init__()
        self.channels, self.axes, self.normed = channels, axes, normed

    def apply_to(self, x: Tensor, factors: Tensor) -> Tensor:
        """x times factors (K,), or (B, K) where every sample has its own."""
        return x * factors[(..., *[None] * self.axes)]

    def outputs(self, layer: nn.Module) -> int:
        return self.channels

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        """The product with x; what the factors cost comes on top."""
        return Flops(out.numel(), out.numel())

    def merged(self, layer: nn.Module) -> nn.Module:
        """What stands before the gate, in plain layers, and the gate behind it as a module."""
        return nn.Sequential(layer, self.standalone().eval())
