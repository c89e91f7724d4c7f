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


def to_pillow(picture: Tensor) -> Image.Image:
    """A (3, H, W) uint8 picture as Pillow's."""
    return Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())


def encode_png(picture: Tensor) -> bytes:
    """The bytes of a (3, H, W) uint8 picture's PNG."""
    buffer = io.BytesIO()
    to_pillow(picture).save(buffer, "PNG")
    return buffer.getvalue()


def save_png(picture: Tensor, path: str | os.PathLike) -> None:
    """Write a (3, H, W) uint8 picture atomically."""
    write_bytes(path, encode_png(picture))


def save_grid(images: Tensor, path: str | os.PathLike, columns: int = 8) -> None:
    """Write (N, 3, S, S) uint8 images as one PNG."""
    save_png(tile(images.cpu(), columns), path)
