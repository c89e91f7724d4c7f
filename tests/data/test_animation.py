"""Animations: what comes back is what went in."""

import io

import pytest
import torch
from PIL import Image

from eftgan.data.animation import FRAME_MS, encode_animation, save_animation
from eftgan.data.grid import to_pillow


def frames(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(256, (3, 6, 8), generator=generator, dtype=torch.uint8) for _ in range(count)]


@pytest.mark.parametrize(("suffix", "kind"), [(".gif", "GIF"), (".webp", "WEBP")])
def test_an_animation_goes_there_and_back_for_ever(suffix, kind):
    given = frames()
    with Image.open(io.BytesIO(encode_animation(given, suffix))) as opened:
        assert (opened.format, opened.size, opened.n_frames, opened.info["loop"]) == (kind, (8, 6), 6, 0)
        shown = []
        for index in range(opened.n_frames):
            opened.seek(index)
            opened.load()
            assert opened.info["duration"] == FRAME_MS
            shown.append(opened.convert("RGB").tobytes())
    wanted = [to_pillow(given[index]).tobytes() for index in (0, 1, 2, 3, 2, 1)]
    assert shown == wanted  # 48 pixels fit the palette of a GIF too


def test_an_animation_is_written_as_its_name_says(tmp_path):
    save_animation(frames(2), tmp_path / "way.WEBP")
    with Image.open(tmp_path / "way.WEBP") as opened:
        assert (opened.format, opened.n_frames) == ("WEBP", 2)
