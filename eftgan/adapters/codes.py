"""A 3x3 convolution over a map beside a code that is repeated at every pixel, without going over the repetition.

The code's part of the result is the same at every pixel but those at the border, which see zeros beyond it: nine values
in all, those of a 3x3 map of the code. A network marks such a convolution by `repeated`, the number of its first input
channels that are the code's.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from eftgan.adapters.layers import KNOWN_FORWARDS, has_own_weight


class CodedConv2d(nn.Conv2d):
    """Parameters and their names are the convolution's own."""

    repeated: int

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        height, width = input.shape[2:]
        if min(height, width) < 3:
            return super()._conv_forward(input, weight, bias)
        code, own = weight.split([self.repeated, self.in_channels - self.repeated], dim=1)
        nine = F.conv2d(input[:, : self.repeated, :3, :3], code, bias, padding=1)
        return F.conv2d(input[:, self.repeated :], own, padding=1) + _spread(_spread(nine, 2, height), 3, width)


def _spread(nine: Tensor, axis: int, size: int) -> Tensor:
    """First and last stay at the border, the middle fills what is between."""
    first, middle, last = nine.split(1, dim=axis)
    return torch.cat([first, middle.expand([size - 2 if i == axis else -1 for i in range(4)]), last], dim=axis)


KNOWN_FORWARDS.add(CodedConv2d._conv_forward)


def fuse_codes(network: nn.Module) -> None:
    """Give the convolutions of a network that are marked, and are as they must be, the faster form."""
    for module in network.modules():
        if type(module) is nn.Conv2d and hasattr(module, "repeated") and has_own_weight(module):
            shape = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
            if shape == ((3, 3), (1, 1), (1, 1), (1, 1), 1) and module.padding_mode == "zeros":
                module.__class__ = CodedConv2d
