import math

import numpy as np
import pytest
import scipy.linalg
import torch
from pytorch_fid.fid_score import calculate_frechet_distance

from eftgan.errors import UserError
from eftgan.evaluation.metrics.fid import frechet_distance
from eftgan.evaluation.metrics.kid import kernel_distance
from eftgan.evaluation.statistics import FeatureStatistics


def features(n: int, dims: int, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(dims, dims, generator=torch.Generator().manual_seed(99)) / math.sqrt(dims)
    return torch.randn(n, dims, generator=generator) @ mix + shift


def statistics(*args, **kwargs) -> FeatureStatistics:
    return FeatureStatistics.from_features(features(*args, **kwargs))


def pytorch_fid_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    moments = [(x.mean(axis=0), np.cov(x, rowvar=False)) for x in (a.double().numpy(), b.double().numpy())]
    try:
        return calculate_frechet_distance(*moments[0], *moments[1])
    except TypeError:  # scipy 1.18 dropped an argument that pytorch-fid passes: its formula, spelled out
        (mean_a, cov_a), (mean_b, cov_b) = moments
        root = np.real(scipy.linalg.sqrtm(cov_a @ cov_b))
        return np.sum((mean_a - mean_b) ** 2) + np.trace(cov_a + cov_b - 2 * root)


def test_gaussians_with_diagonal_covariances_have_the_closed_form():
    mean_a, mean_b = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 1.0, 0.0])
    var_a, var_b = torch.tensor([1.0, 4.0, 9.0]), torch.tensor([4.0, 4.0, 1.0])
    a = FeatureStatistics.from_moments(mean_a, var_a.diag(), n=1000)
    b = FeatureStatistics.from_moments(mean_b, var_b.diag(), n=1000)
    expected = (mean_a - mean_b).square().sum() + (var_a.sqrt() - var_b.sqrt()).square().sum()
    assert frechet_distance(a, b) == pytest.approx(expected.item(), rel=1e-12)


def test_singular_covariances_have_the_closed_form():
    a = FeatureStatistics.from_moments(torch.zeros(3), torch.diag(torch.tensor([4.0, 0.0, 0.0])), n=10)
    b = FeatureStatistics.from_moments(torch.zeros(3), torch.diag(torch.tensor([1.0, 1.0, 0.0])), n=10)
    assert frechet_distance(a, b) == pytest.approx((2 - 1) ** 2 + 1, abs=1e-9)


@pytest.mark.parametrize(("n_a", "n_b"), [(30, 20), (30, 400), (400, 30), (400, 300)])
def test_distance_agrees_with_pytorch_fid(n_a, n_b):
    a, b = features(n_a, 64), features(n_b, 64, seed=1, shift=0.3)
    ours = frechet_distance(FeatureStatistics.from_features(a), FeatureStatistics.from_features(b))
    assert ours == pytest.approx(pytorch_fid_distance(a, b), abs=1e-3)


def test_the_ways_to_compute_the_distance_agree():
    a, b = features(40, 64), features(50, 64, seed=1, shift=0.2)
    kept = [FeatureStatistics.from_features(x) for x in (a, b)]
    moments = [FeatureStatistics.from_features(x, keep=()) for x in (a, b)]
    by_svd = frechet_distance(*kept)
    assert frechet_distance(*moments) == pytest.approx(by_svd, abs=1e-5)
    assert frechet_distance(kept[0], moments[1]) == pytest.approx(by_svd, abs=1e-5)


def test_distance_is_symmetric_and_zero_only_to_itself():
    a, b = statistics(100, 16), statistics(100, 16, seed=1, shift=0.5)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-9)
    assert frechet_distance(a, b) > 1


def test_streaming_equals_one_pass():
    x = features(2500, 8).float() + 1000  # a large mean: where naive sums of squares lose their digits
    stream = FeatureStatistics(8)
    for batch in x.split(7):
        stream.update(batch)
    assert stream.n == 2500
    torch.testing.assert_close(stream.mean, x.double().mean(dim=0), rtol=1e-12, atol=0)
    torch.testing.assert_close(stream.covariance, x.double().T.cov(), rtol=1e-9, atol=1e-9)


def test_order_does_not_matter():
    x = features(1500, 8)
    shuffled = x[torch.randperm(1500, generator=torch.Generator().manual_seed(3))]
    other = statistics(200, 8, seed=5, shift=1)
    one, two = (frechet_distance(FeatureStatistics.from_features(v), other) for v in (x, shuffled))
    assert one == pytest.approx(two, rel=1e-9)


def test_merged_parts_equal_the_whole():
    x = features(300, 8)
    merged = FeatureStatistics(8)
    for part in x.split([120, 1, 179]):
        merged.merge(FeatureStatistics.from_features(part))
    torch.testing.assert_close(merged.covariance, x.double().T.cov())
    assert torch.equal(merged.features, x)


@pytest.mark.parametrize("keep", [range(10), (0, 3, 11, 24), ()])
def test_the_features_at_the_wanted_places_are_kept(keep):
    kept = FeatureStatistics(4, keep=keep)
    for batch in features(25, 4).split(4):
        kept.update(batch)
    assert kept.n == 25
    assert torch.equal(kept.features, features(25, 4)[list(keep)])


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_images_are_refused(n):
    with pytest.raises(UserError, match="at least 2 images"):
        frechet_distance(statistics(n, 4), statistics(10, 4))
    with pytest.raises(UserError, match="at least 2 images"):
        kernel_distance(features(10, 4), features(n, 4))


def test_features_of_different_extractors_and_damaged_ones_are_refused():
    with pytest.raises(UserError, match="one extractor"):
        frechet_distance(statistics(10, 4), statistics(10, 8))
    with pytest.raises(UserError, match="not finite"):
        FeatureStatistics(2).update(torch.tensor([[1.0, math.nan]]))


def test_kernel_distance_is_near_zero_within_one_distribution_and_spreads():
    mean, std = kernel_distance(features(400, 16), features(400, 16, seed=1))
    assert abs(mean) < 3 * std
    assert std > 0
    far, _ = kernel_distance(features(400, 16), features(400, 16, seed=1, shift=1))
    assert far > 10 * std


def test_kernel_distance_of_whole_sets_is_the_unbiased_estimate():
    x, y = features(4, 3).double(), features(4, 3, seed=1, shift=1).double()

    def kernel(a, b):
        return (a @ b / 3 + 1) ** 3

    pairs = [(i, j) for i in range(2) for j in range(2) if i != j]
    values = []
    for i in torch.combinations(torch.arange(4)):
        for j in torch.combinations(torch.arange(4)):
            u, v = x[i], y[j]
            within = sum(kernel(u[a], u[b]) + kernel(v[a], v[b]) for a, b in pairs) / 2
            values.append(within - 2 * sum(kernel(a, b) for a in u for b in v) / 4)
    mean, std = kernel_distance(x, y, subsets=1500)
    assert mean == pytest.approx(torch.stack(values).mean().item(), abs=4 * std / math.sqrt(1500))


def test_kernel_distance_depends_on_its_seed_alone():
    a, b = features(50, 8), features(60, 8, seed=1)
    torch.manual_seed(1)
    one = kernel_distance(a, b, seed=7)
    torch.manual_seed(2)
    assert kernel_distance(a, b, seed=7) == one
    assert kernel_distance(a, b, seed=8) != one
