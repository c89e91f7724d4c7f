"""AlexNet in its one-tower form (Krizhevsky 2014) for 224x224 images, with torchvision's layer sizes."""

from __future__ import annotations

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Images (B, 3, 224, 224) -> logits (B, num_classes)."""

    def __init__(self, num_classes: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),  # (B, 64, 27, 27)
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),  # (B, 192, 13, 13)
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),  # (B, 256, 6, 6)
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(6), nn.Flatten())
        self.hidden = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Linear(4096, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Pre-output features (B, 4096)."""
        return self.hidden(self.pool(self.convolutions(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def alexnet(num_classes: int) -> AlexNet:
    """AlexNet for ImageNet sizes."""
    return AlexNet(num_classes)
