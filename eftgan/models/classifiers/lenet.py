"""The LeNet of APD (Yoon et al. 2020) for 32x32 images."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """Images (B, 3, 32, 32) -> logits (B, num_classes)."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 20, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),  # (B, 20, 16, 16)
            nn.Conv2d(20, 50, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),  # (B, 50, 8, 8)
        )
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Linear(50 * 8 * 8, 800),
            nn.ReLU(inplace=True),
            nn.Linear(800, 500),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Linear(500, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """Pre-output features (B, 500)."""
        return self.hidden(self.convolutions(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def lenet_apd(num_classes: int) -> LeNet:
    """LeNet with 20 and 50 filters and hidden layers of 800 and 500."""
    return LeNet(num_classes)
