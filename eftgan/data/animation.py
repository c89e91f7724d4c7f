"""Pictures one after another, as an animation that browsers and viewers show without a player."""

import io
import os
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from eftgan.data.grid import to_pillow
from eftgan.files import write_bytes

# By suffix, Pillow's name of the format and its options: pixels are kept as they are where the format can.
ANIMATIONS: dict[str, tuple[str, dict[str, Any]]] = {".gif": ("GIF", {}), ".webp": ("WEBP", {"lossless": True})}
FRAME_MS = 80


def encode_animation(frames: Sequence[Tensor], suffix: str) -> bytes:
    """(3, H, W) uint8 pictures as a GIF or an animated WebP that goes there and back, for ever."""
    kind, options = ANIMATIONS[suffix]
    first, *rest = [to_pillow(frame) for frame in there_and_back(frames)]
    buffer = io.BytesIO()
    first.save(buffer, kind, save_all=True, append_images=rest, duration=FRAME_MS, loop=0, **options)
    return buffer.getvalue()


def there_and_back(frames: Sequence[Tensor]) -> list[Tensor]:
    """So that the last frame leads to the first without a jump."""
    return [*frames, *reversed(frames[1:-1])]


def save_animation(frames: Sequence[Tensor], path: str | os.PathLike[str]) -> None:
    """Write an animation, atomically, as the suffix says."""
    write_bytes(path, encode_animation(frames, os.path.splitext(path)[1].lower()))
