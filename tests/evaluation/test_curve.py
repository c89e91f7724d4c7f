"""When a curve is flat, and when it still falls."""

import pytest

from eftgan.evaluation.metrics.curve import Curve, Point, read_curve, write_curve


def curve(*values: float, spread: float | None = None, every: int = 100) -> Curve:
    points = (Point(every * number, value, spread) for number, value in enumerate(values, 1))
    return Curve("cats", "KID", 500, tuple(points))


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ((0.3,), False),
        ((0.3, 0.3), False),  # two points cannot have had patience of two
        ((0.3, 0.3, 0.3), True),
        ((0.3, 0.29, 0.284), False),  # each gain is small, both together are not
        ((0.3, 0.29, 0.286), True),
        ((0.3, 0.2, 0.4), False),
        ((0.3, 0.2, 0.4, 0.4), True),
        ((0.3, 0.2, 0.4, 0.1), False),
        ((-0.001, -0.001, -0.001), True),  # KID has no bias, so it may fall below 0
    ],
)
def test_a_curve_is_flat_when_the_last_points_bring_less_than_five_per_cent(values, flat):
    assert curve(*values).is_flat(2) == flat


def test_a_gain_within_the_spread_is_none():
    assert not curve(0.3, 0.25, 0.25, spread=0.01).is_flat(2)
    assert curve(0.3, 0.25, 0.25, spread=0.06).is_flat(2)


@pytest.mark.parametrize(
    ("values", "gain"),
    [
        ((0.4, 0.3, 0.2, 0.15), 0.5),
        ((0.4, 0.2, 0.19, 0.19), 0.05),
        ((0.4, 0.2, 0.3, 0.3), -0.5),
        ((0.4,), None),
        ((), None),
    ],
)
def test_the_late_gain_compares_the_best_of_both_halves(values, gain):
    assert curve(*values).late_gain == pytest.approx(gain)
    assert curve(*values).still_falls == (gain is not None and gain > 0.1)


def test_of_equal_points_the_first_is_the_best():
    assert curve(0.3, 0.2, 0.2).best.step == 200


def test_a_curve_is_read_back_as_it_was_written(tmp_path):
    made = curve(0.3, 0.2, spread=0.01)
    write_curve(tmp_path / "curves" / "01-cats.json", made)
    assert read_curve(tmp_path / "curves" / "01-cats.json") == made
    assert read_curve(tmp_path / "curves" / "02-birds.json") is None
