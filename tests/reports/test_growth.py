import pytest

from eftgan.reports.growth import Growth

NAMES = ("base_parameters", "adapter_parameters", "norm_parameters", "head_parameters")


@pytest.mark.parametrize(
    ("counts", "totals", "share"),
    [
        ((100, 4, 2, 1), [1.04, 1.11, 1.18], 0.04),  # EFT: the base's own norm and head are only the first pattern
        ((100, 0, 2, 0), [1.00, 1.02, 1.04], 0.0),  # MeRGAN: normalisation
        ((100, 0, 0, 0), [1.00, 1.00, 1.00], 0.0),
        ((100, 0, 10, 90), [1.00, 2.00, 3.00], 1.0),  # nothing in common
    ],
)
def test_parameters_in_use_are_counted_once(counts, totals, share):
    base, adapters, *_ = counts
    details = dict(zip(NAMES, counts, strict=True))
    growth = Growth("any", ("a", "b", "c"), (adapters / base,) * 3, (details,) * 3)
    assert growth.totals() == pytest.approx(totals)
    assert growth.share == (share,) * 3


def test_lines_without_counts_leave_the_curve_out():
    growth = Growth("any", ("a", "b"), (0.04, 0.04), ({}, {}))
    assert growth.totals() is None
    assert growth.share == (0.04, 0.04)
