"""Training transforms on whole batches of uint8 tensors."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from eftgan.errors import UserError


def random_crop_flip(batch: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    """(B, 3, S, S) -> (B, 3, size, size): every sample its own crop offset and horizontal flip."""
    count, _, height, width = batch.shape
    if size > min(height, width):
        raise ValueError(f"cannot crop {size}x{size} from {height}x{width}")
    top = torch.randint(height - size + 1, (count, 1), generator=generator)
    left = torch.randint(width - size + 1, (count, 1), generator=generator)
    flip = torch.rand(count, 1, generator=generator) < 0.5
    steps = torch.arange(size)
    rows = top + steps  # (B, size)
    columns = left + torch.where(flip, steps.flip(0), steps)  # (B, size)
    pixels = (rows[:, :, None] * width + columns[:, None, :]).flatten(1).to(batch.device)  # (B, size*size)
    cropped = batch.flatten(2).gather(2, pixels[:, None].expand(-1, batch.shape[1], -1))
    return cropped.unflatten(2, (size, size))


def crop_flip_pad(batch: torch.Tensor, padding: int = 4, *, generator: torch.Generator) -> torch.Tensor:
    """CIFAR's usual augmentation: zero padding, a random crop of the original size, a random flip."""
    return random_crop_flip(F.pad(batch, (padding,) * 4), batch.shape[-1], generator)


def random_rotation(batch: torch.Tensor, degrees: float, generator: torch.Generator) -> torch.Tensor:
    """Every sample turned about its centre by its own angle of up to `degrees` either way; corners become black.

    Nearest pixels, as torchvision's RandomRotation takes them by default.
    """
    angles = (2 * torch.rand(len(batch), generator=generator) - 1) * math.radians(degrees)
    cosine, sine, none = angles.cos(), angles.sin(), torch.zeros_like(angles)
    turns = torch.stack([cosine, -sine, none, sine, cosine, none], 1).unflatten(1, (2, 3)).to(batch.device)
    grid = F.affine_grid(turns, list(batch.shape), align_corners=False)
    turned = F.grid_sample(batch.float(), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return turned.to(torch.uint8)


def centre_crop(batch: torch.Tensor, size: int) -> torch.Tensor:
    """(..., H, W) -> (..., size, size), the middle."""
    top, left = (batch.shape[-2] - size) // 2, (batch.shape[-1] - size) // 2
    if min(top, left) < 0:
        height, width = batch.shape[-2:]
        raise UserError(f"an image of {width} x {height} can't be cropped to {size} x {size}: store it larger")
    return batch[..., top : top + size, left : left + size]


def multiscale(batch: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    """uint8 (B, 3, S, S) -> float images in [-1, 1] at each size, coarse to fine; coarser ones by area average.

    `sizes` ascend and end with S.
    """
    if sizes[-1] != batch.shape[-1] or any(batch.shape[-1] % size for size in sizes):
        raise ValueError(f"sizes {list(sizes)} must divide and end with the batch's {batch.shape[-1]}")
    finest = to_unit(batch)
    return [finest if size == sizes[-1] else F.avg_pool2d(finest, sizes[-1] // size) for size in sizes]


def to_unit(batch: torch.Tensor) -> torch.Tensor:
    """uint8 -> float32 in [-1, 1]."""
    return batch.to(torch.float32).div_(127.5).sub_(1)


def to_uint8(batch: torch.Tensor) -> torch.Tensor:
    """[-1, 1] -> uint8, rounded to nearest, so that `to_uint8(to_unit(x))` is x."""
    return batch.detach().float().add(1).mul(127.5).round().clamp(0, 255).to(torch.uint8)
