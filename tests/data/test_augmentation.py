"""Batch transforms: each sample is treated on its own, pixels are moved and never made up."""

import pytest
import torch

from eftgan.data.augmentation import (
    centre_crop,
    crop_flip_pad,
    multiscale,
    random_crop_flip,
    random_rotation,
    to_uint8,
    to_unit,
)
from eftgan.errors import UserError


@pytest.fixture
def batch():
    return torch.randint(0, 256, (64, 3, 38, 38), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def placements(image, crop):
    """Every (top, left, flipped) at which `crop` is a piece of `image`."""
    size = crop.shape[-1]
    reach = range(image.shape[-1] - size + 1)
    for flipped, candidate in ((False, crop), (True, crop.flip(-1))):
        for top in reach:
            for left in reach:
                if torch.equal(image[:, top : top + size, left : left + size], candidate):
                    yield top, left, flipped


def test_every_crop_is_a_piece_of_its_own_image_with_its_own_offset_and_flip(batch):
    crops = random_crop_flip(batch, 32, torch.Generator().manual_seed(1))
    assert crops.shape == (64, 3, 32, 32)
    assert crops.dtype == torch.uint8
    found = [next(placements(image, crop)) for image, crop in zip(batch, crops, strict=True)]
    assert len({place[:2] for place in found}) > 20
    assert 15 < sum(flipped for *_, flipped in found) < 49
    assert {0, 6} <= {top for top, *_ in found}


def test_crops_follow_the_generator(batch):
    first, again, other = (random_crop_flip(batch, 32, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_padding_crops_are_pieces_of_the_padded_image(batch):
    padded = torch.nn.functional.pad(batch, (4, 4, 4, 4))
    crops = crop_flip_pad(batch, 4, generator=torch.Generator().manual_seed(3))
    assert crops.shape == batch.shape
    for image, crop in zip(padded[:8], crops[:8], strict=True):
        next(placements(image, crop))


def test_every_sample_is_turned_by_its_own_angle_within_the_limit(monkeypatch):
    line = torch.zeros(64, 1, 41, 41, dtype=torch.uint8)
    line[..., 20, :] = 255  # through the centre: its tilt is the angle
    turned = random_rotation(line, 10, torch.Generator().manual_seed(0))
    assert turned.dtype == torch.uint8
    assert set(turned.unique().tolist()) == {0, 255}  # pixels are moved, not mixed
    rows = turned[:, 0, :, 35].float().argmax(1) - 20  # 15 to the right of the centre
    angles = torch.rad2deg(torch.atan2(rows.float(), torch.tensor(15.0)))
    assert angles.abs().max() <= 10 + 2  # a pixel is two degrees here
    assert angles.max() > 5
    assert angles.min() < -5
    assert torch.equal(turned, random_rotation(line, 10, torch.Generator().manual_seed(0)))
    monkeypatch.setattr(torch, "rand", lambda count, generator: torch.ones(count))
    assert torch.equal(random_rotation(line, 90, torch.Generator()), line.transpose(2, 3))


def test_centre_crop_takes_the_middle(batch):
    assert torch.equal(centre_crop(batch, 32), batch[:, :, 3:35, 3:35])
    with pytest.raises(UserError, match="cropped to 64 x 64"):
        centre_crop(batch, 64)


def test_scales_run_coarse_to_fine_and_coarser_ones_are_averages(batch):
    fine = centre_crop(batch, 32)
    coarse, middle, finest = multiscale(fine, [8, 16, 32])
    assert [scale.shape[-1] for scale in (coarse, middle, finest)] == [8, 16, 32]
    assert torch.equal(finest, to_unit(fine))
    assert torch.allclose(coarse[0, 0, 0, 0], finest[0, 0, :4, :4].mean(), atol=1e-6)
    with pytest.raises(ValueError, match="must divide"):
        multiscale(fine, [16, 64])


def test_every_byte_survives_the_way_to_floats_and_back():
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    assert torch.equal(to_uint8(to_unit(every)), every)
    assert to_unit(every).min() == -1
    assert to_unit(every).max() == 1
    assert to_uint8(torch.tensor([-3.0, 3.0])).tolist() == [0, 255]
