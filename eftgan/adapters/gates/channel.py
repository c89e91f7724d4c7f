"""The channel-wise calibration of CCLL (Singh et al., NeurIPS 2020)."""

import torch
from torch import Tensor, nn

from eftgan.adapters.gates.base import Gate
from eftgan.adapters.transforms import Flops, Option
from eftgan.errors import UserError

OPEN = 40.0  # its sigmoid is 1 in any precision


class ChannelGate(Gate):
    """g = sigmoid(BN(w * mean of the map)): a factor per sample and channel, from the channel's own mean.

    The neutral state is wide open, so that its gradient is all but zero: learning starts from the random state, in
    which g is about one half.
    """

    on_linear = False

    def __init__(self, channels: int, axes: int, normed: bool = False) -> None:
        super().__init__(channels, axes, normed)
        self.w = nn.Parameter(torch.empty(channels))
        self.norm = nn.BatchNorm1d(channels)
        self.set_identity()

    @torch.no_grad()
    def set_identity(self) -> None:
        nn.init.ones_(self.w)
        self.norm.reset_parameters()
        nn.init.zeros_(self.norm.weight)
        nn.init.constant_(self.norm.bias, OPEN)

    def reset_parameters(self) -> None:
        """As PyTorch starts a depthwise 1x1 convolution, which the authors write w as, and a BatchNorm."""
        nn.init.uniform_(self.w, -1.0, 1.0)
        self.norm.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 2:
            raise UserError("channel gates are normalised over the batch, so training needs at least 2 samples a step")
        means = x.mean(tuple(range(-self.axes, 0)))  # (B, K)
        return self.apply_to(x, torch.sigmoid(self.norm(means * self.w)))

    def describe(self) -> dict[str, Option]:
        return {"kind": "channel gate"}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        factors = 4 * self.channels * len(out)  # w, BatchNorm and sigmoid
        return Flops(out.numel() + factors, out.numel() + factors)
