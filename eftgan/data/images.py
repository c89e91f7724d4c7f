"""One way from image bytes to square RGB pixels, whatever the file's mode, depth or orientation."""

import io
import os
import warnings
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def is_image_name(name: str) -> bool:
    """Whether a file name looks like an image that belongs to the data."""
    return not is_hidden_name(name) and name.lower().endswith(IMAGE_SUFFIXES)


def is_hidden_name(name: str) -> bool:
    """Whether a file is hidden, or one that a system keeps beside those of people."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def decode_rgb(content: bytes) -> Image.Image:
    """Decode an image file to upright 8-bit RGB; what is transparent becomes white. Raises if it is broken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd EXIF blocks: harmless here
        image = open_image(io.BytesIO(content))
        image.load()
        image = ImageOps.exif_transpose(image)
    return _to_rgb(image)


def open_image(source: str | os.PathLike | BinaryIO) -> Image.Image:
    """Pillow's `Image.open`, strict about its limit of pixels: a small file must not become gigabytes."""
    try:
        image = Image.open(source)
    except Image.DecompressionBombError as error:  # above twice the limit
        raise ValueError(str(error)) from error
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:  # Pillow itself only warns here
        raise ValueError(f"{image.width} x {image.height} pixels are more than the limit of {limit}")
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range; save the image with 8 or 16 bits")
    if image.mode.startswith("I"):  # Pillow's own conversion would clip 16-bit values at 255
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def fit_square(image: Image.Image, size: int) -> Image.Image:
    """Short side to `size` with antialiasing, then the centre crop: done as one resize of the centre square."""
    width, height = image.size
    side = min(width, height)
    if (width, height) == (size, size):
        return image
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box)


def to_chw(image: Image.Image) -> np.ndarray:
    """(H, W) RGB image -> uint8 (3, H, W)."""
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1))


def encode_jpeg(pixels: np.ndarray) -> bytes:
    """uint8 (3, H, W) -> JPEG bytes, with full colour resolution and next to no visible loss."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()
