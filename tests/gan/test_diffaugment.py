"""DiffAugment: each policy does what it says, differentiably, from one random stream."""

import pytest
import torch

from eftgan.gan.diffaugment import diff_augment

ALL = ("color", "translation", "cutout")


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("policy", [(), *((name,) for name in ALL), ALL])
def test_shape_and_gradients_are_kept(policy):
    x = torch.rand(4, 3, 16, 16, generator=rng(), requires_grad=True)
    y = diff_augment(x, policy, rng())
    assert y.shape == x.shape
    y.square().sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad != 0).any()


def test_the_generator_alone_decides():
    x = torch.randn(8, 3, 16, 16)
    first = diff_augment(x, generator=rng(1))
    torch.rand(3)  # the global stream plays no part
    assert torch.equal(first, diff_augment(x, generator=rng(1)))
    assert not torch.equal(first, diff_augment(x, generator=rng(2)))


def test_no_policy_changes_nothing():
    x = torch.randn(2, 3, 8, 8)
    assert diff_augment(x, ()) is x


def test_colour_moves_grey_images_by_brightness_only():
    grey = torch.full((64, 3, 4, 4), 0.25)  # no saturation, no contrast to scale
    moved = diff_augment(grey, ("color",), rng())
    shift = (moved - grey).flatten(1)
    assert shift.std(dim=1).max() < 1e-6
    assert -0.5 <= shift.min() < -0.3
    assert 0.3 < shift.max() <= 0.5


def test_translation_shifts_whole_images_and_fills_with_zeros():
    size, reach = 16, 2
    x = torch.rand(200, 2, size, size, generator=rng()) + 1
    y = diff_augment(x, ("translation",), rng())
    padded = torch.nn.functional.pad(x, [reach] * 4)
    seen = set()
    for before, after in zip(padded, y, strict=True):
        matches = [
            (top, left)
            for top in range(2 * reach + 1)
            for left in range(2 * reach + 1)
            if torch.equal(before[:, top : top + size, left : left + size], after)
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) == 25  # every shift from -2 to 2 both ways comes up


def test_cutout_blanks_one_square_of_half_the_side():
    y = diff_augment(torch.ones(200, 3, 16, 16), ("cutout",), rng())
    assert set(y.unique().tolist()) == {0.0, 1.0}
    blank = y[:, 0] == 0
    rows, columns = blank.any(2).sum(1), blank.any(1).sum(1)
    assert torch.equal(blank.sum((1, 2)), rows * columns)  # a rectangle, the same in every channel
    assert torch.equal(y[:, 0], y[:, 2])
    assert rows.max() == columns.max() == 8
    assert rows.min() >= 4  # the centre lies in the image, so at least half remains


def test_an_unknown_policy_is_named():
    with pytest.raises(ValueError, match="'colour'; there are: color, translation, cutout"):
        diff_augment(torch.zeros(1, 3, 8, 8), ("colour",))
