"""Differentiable augmentation for GANs on little data (Zhao et al. 2020).

Real and fake images both pass through it before every discriminator, so it never leaks into the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TRANSLATION_RATIO = 0.125  # largest shift, of the image's side
CUTOUT_RATIO = 0.5  # side of the blanked square, of the image's side

# Draws uniform numbers in [0, 1): one per image, shape (B, 1, 1, 1).
Draw = Callable[[], Tensor]


def diff_augment(
    x: Tensor,
    policy: Sequence[str] = ("color", "translation", "cutout"),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Images (B, C, H, W) in [-1, 1] -> augmented images of the same shape; every image gets its own draw.

    Gradients flow back to `x`. The generator alone decides the draws, on whatever device it lives.
    """
    unknown = [name for name in policy if name not in AUGMENTATIONS]
    if unknown:
        raise ValueError(f"unknown augmentation {unknown[0]!r}; there are: {', '.join(AUGMENTATIONS)}")
    device = x.device if generator is None else generator.device

    def draw() -> Tensor:
        return torch.rand(x.size(0), 1, 1, 1, generator=generator, device=device).to(x.device, x.dtype)

    for name in policy:
        for augment in AUGMENTATIONS[name]:
            x = augment(x, draw)
    return x


def brightness(x: Tensor, draw: Draw) -> Tensor:
    """Adds one value from [-0.5, 0.5) to every pixel of an image."""
    return x + (draw() - 0.5)


def saturation(x: Tensor, draw: Draw) -> Tensor:
    """Scales each pixel's distance from its own grey by [0, 2)."""
    grey = x.mean(dim=1, keepdim=True)
    return (x - grey) * (2 * draw()) + grey


def contrast(x: Tensor, draw: Draw) -> Tensor:
    """Scales each pixel's distance from the image's mean by [0.5, 1.5)."""
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    return (x - mean) * (draw() + 0.5) + mean


def translation(x: Tensor, draw: Draw) -> Tensor:
    """Shifts each image by whole pixels, at most an eighth of its side; zeros come in from outside."""
    rows, row_inside = _shifted_index(x.size(2), draw)
    columns, column_inside = _shifted_index(x.size(3), draw)
    batch = torch.arange(x.size(0), device=x.device).view(-1, 1, 1)
    moved = x[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)  # (B, C, H, W)
    inside = row_inside[:, None, :, None] & column_inside[:, None, None, :]
    return moved * inside


def cutout(x: Tensor, draw: Draw) -> Tensor:
    """Blanks a square of half the side, centred anywhere in the image, so part of it may lie outside."""
    in_rows = _square_span(x.size(2), draw)
    in_columns = _square_span(x.size(3), draw)
    return x * ~(in_rows[:, None, :, None] & in_columns[:, None, None, :])


def _shifted_index(size: int, draw: Draw) -> tuple[Tensor, Tensor]:
    """Where each output position (B, size) reads from, and whether that lies inside the image."""
    reach = int(size * TRANSLATION_RATIO + 0.5)
    shift = _integer(draw, 2 * reach + 1) - reach  # (B, 1)
    source = torch.arange(size, device=shift.device) - shift
    return source.clamp(0, size - 1), (source >= 0) & (source < size)


def _square_span(size: int, draw: Draw) -> Tensor:
    """Which positions (B, size) of one axis the blanked square covers."""
    side = int(size * CUTOUT_RATIO + 0.5)
    start = _integer(draw, size + 1 - side % 2) - side // 2  # (B, 1)
    position = torch.arange(size, device=start.device)
    return (position >= start) & (position < start + side)


def _integer(draw: Draw, choices: int) -> Tensor:
    """Whole numbers (B, 1) from 0 to choices - 1, equally likely."""
    # In low precision a draw may round up to 1.0.
    return (draw().flatten(1).float() * choices).long().clamp_max(choices - 1)


AUGMENTATIONS: dict[str, tuple[Callable[[Tensor, Draw], Tensor], ...]] = {
    "color": (brightness, saturation, contrast),
    "translation": (translation,),
    "cutout": (cutout,),
}
