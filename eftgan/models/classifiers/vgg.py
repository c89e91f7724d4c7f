"""VGG-16 with BatchNorm (Simonyan and Zisserman 2015) for small images: one linear layer after pooling."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

# Width and number of convolutions of each block; 13 convolutions in all.
VGG16_BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


class Vgg(nn.Module):
    """Images (B, 3, H, W) -> logits (B, num_classes); every block ends in a halving max-pool."""

    def __init__(self, blocks: Sequence[tuple[int, int]], pooled_size: int, num_classes: int) -> None:
        super().__init__()
        inputs = [3, *(width for width, _ in blocks[:-1])]
        self.blocks = nn.Sequential(
            *(_block(c_in, width, count) for c_in, (width, count) in zip(inputs, blocks, strict=True))
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(pooled_size), nn.Flatten())
        self.head = nn.Linear(blocks[-1][0] * pooled_size**2, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Pre-output features (B, last width * pooled_size^2)."""
        x = self.blocks(x)  # (B, last width, H / 2^blocks, W / 2^blocks)
        return self.pool(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def vgg16_bn(num_classes: int) -> Vgg:
    """VGG-16-BN for 32x32 images."""
    return Vgg(VGG16_BLOCKS, 1, num_classes)


def vgg16_tiny(num_classes: int) -> Vgg:
    """VGG-16-BN for Tiny-ImageNet's 64x64: without the last block, average pool to 2x2."""
    return Vgg(VGG16_BLOCKS[:-1], 2, num_classes)


def _block(c_in: int, width: int, count: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(count):
        # The bias is redundant before BatchNorm, but VGG has it and published sizes count it.
        conv = nn.Conv2d(c_in if index == 0 else width, width, 3, padding=1)
        layers += [conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(2))
