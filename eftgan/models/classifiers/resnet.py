"""Residual networks for 32x32 images (He et al. 2016): 3x3 stem, no max-pool.

Where a block changes the shape, its shortcut is a 1x1 convolution with BatchNorm (option B of the paper), in
ResNet-32 too: every path then has weights that a task can adapt.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class ResNet(nn.Module):
    """Images (B, 3, H, W) -> logits (B, num_classes); one stage per width, each but the first halving."""

    def __init__(self, widths: Sequence[int], blocks_per_stage: int, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, widths[0], 3), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True))
        inputs = [widths[0], *widths[:-1]]
        self.stages = nn.Sequential(
            *(
                _stage(c_in, c_out, blocks_per_stage, stride=1 if index == 0 else 2)
                for index, (c_in, c_out) in enumerate(zip(inputs, widths, strict=True))
            )
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(widths[-1], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Pre-output features (B, widths[-1])."""
        x = self.stages(self.stem(x))  # (B, widths[-1], H / 2^(stages-1), W / 2^(stages-1))
        return self.pool(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _conv(c_in, c_out, 3, stride),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            _conv(c_out, c_out, 3),
            nn.BatchNorm2d(c_out),
        )
        same_shape = stride == 1 and c_in == c_out
        self.shortcut = (
            nn.Identity() if same_shape else nn.Sequential(_conv(c_in, c_out, 1, stride), nn.BatchNorm2d(c_out))
        )
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.residual(x) + self.shortcut(x))


def resnet18(num_classes: int) -> ResNet:
    """ResNet-18 with a CIFAR stem."""
    return ResNet((64, 128, 256, 512), 2, num_classes)


def resnet18_third(num_classes: int) -> ResNet:
    """ResNet-18 at about a third of its width (ResNet-18/3)."""
    return ResNet((20, 40, 80, 160), 2, num_classes)


def resnet8(num_classes: int) -> ResNet:
    """The CIFAR ResNet-8: three stages of one block; for demos and small machines."""
    return ResNet((16, 32, 64), 1, num_classes)


def resnet32(num_classes: int) -> ResNet:
    """The CIFAR ResNet-32: three stages of five blocks."""
    return ResNet((16, 32, 64), 5, num_classes)


def _stage(c_in: int, c_out: int, blocks: int, stride: int) -> nn.Sequential:
    later = (BasicBlock(c_out, c_out, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(BasicBlock(c_in, c_out, stride), *later)


def _conv(c_in: int, c_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)
