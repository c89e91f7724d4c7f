"""Many small images as one picture."""

import io
import os

import torch
from PIL import Image
from torch import Tensor

from eftgan.files import write_bytes


def tile(images: Tensor, columns: int, gap: int = 2) -> Tensor:
    """(N, 3, S, S) uint8 -> one (3, H, W) picture on white, row by row."""
    count, channels, size, _ = images.shape
    rows = -(-count // columns)
    step = size + gap
    canvas = torch.full((channels, rows * step - gap, columns * step - gap), 255, dtype=torch.uint8)
    for index, image in enumerate(images):
        top, left = (index // columns) * step, (index % columns) * step
        canvas[:, top : top + size, left : left + size] = image
    return canvas


def png(picture: Tensor) -> bytes:
    """A (3, H, W) uint8 picture as the content of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy()).save(buffer, "PNG")
    return buffer.getvalue()


def save_png(picture: Tensor, path: str | os.PathLike) -> None:
    """Write a (3, H, W) uint8 picture atomically."""
    write_bytes(path, png(picture))


def save_grid(images: Tensor, path: str | os.PathLike, columns: int = 8) -> None:
    """Write (N, 3, S, S) uint8 images as one PNG."""
    save_png(tile(images.cpu(), columns), path)
