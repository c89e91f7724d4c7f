"""From stored bytes to what a classifier reads."""

from dataclasses import dataclass
from typing import Annotated

import torch
from typing_extensions import Doc

from eftgan.config import Positive


@dataclass(frozen=True)
class Pixels:
    """Normalisation of uint8 images, per colour channel in units of the full range."""

    mean: Annotated[tuple[float, float, float], Doc("subtracted from red, green, blue")] = (0.5, 0.5, 0.5)
    std: Annotated[tuple[Positive, Positive, Positive], Doc("what they are divided by then")] = (0.25, 0.25, 0.25)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, 3, S, S) -> float32, where the images are."""
        mean, std = (torch.tensor(v, device=images.device).view(3, 1, 1) for v in (self.mean, self.std))
        return (images.to(torch.float32) / 255 - mean) / std
