"""Fréchet distance of image features: FID (Heusel et al. 2017), and the same over a small random network."""

import math
from typing import TYPE_CHECKING

from eftgan.errors import UserError
from eftgan.evaluation.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from eftgan.evaluation.statistics import FeatureStatistics


class FrechetDistance(Metric):
    """The distance between two Gaussians that have the features' means and covariances."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        return frechet_distance(real, fake), None


FID = FrechetDistance(
    name="FID",
    features="inception",
    lower_is_better=True,
    digits=1,
    main=True,
    depends_on_n=True,
    explanation="FID measures how far generated pictures are from real ones",
)
FD_RANDOM = FrechetDistance(
    name="FD-random",
    features="random",
    lower_is_better=True,
    digits=1,
    main=True,
    depends_on_n=True,
    explanation="FD-random measures how far generated pictures are from real ones, over a small fixed random network",
)


def frechet_distance(a: "FeatureStatistics", b: "FeatureStatistics") -> float:
    """|mean_a - mean_b|^2 + tr(C_a) + tr(C_b) - 2 tr((C_a C_b)^(1/2)), exactly, without a matrix root."""
    for statistics in (a, b):
        if statistics.n < 2:
            raise UserError(f"a distance needs at least 2 images on each side; one side has {statistics.n}")
    if a.dims != b.dims:
        raise UserError(f"features of {a.dims} and {b.dims} dims can't be compared: use one extractor for both")
    difference = a.mean - b.mean
    distance = difference @ difference + _variance(a) + _variance(b) - 2 * _trace_of_root(a, b)
    return max(0.0, distance.item())  # rounding alone can bring equal statistics below zero


def _variance(statistics: "FeatureStatistics") -> "Tensor":
    return statistics.covariance.trace()


def _is_thin(statistics: "FeatureStatistics") -> bool:
    """Fewer images than dims, all kept: the centred features are a smaller root than the covariance's own."""
    return len(statistics.features) == statistics.n < statistics.dims


def _centred(statistics: "FeatureStatistics") -> "Tensor":
    return (statistics.features.double() - statistics.mean) / math.sqrt(statistics.n - 1)


def _trace_of_root(a: "FeatureStatistics", b: "FeatureStatistics") -> "Tensor":
    """tr((C_a C_b)^(1/2)): the sum of the singular values of R_a R_b^T, for any roots R^T R = C."""
    from torch.linalg import eigvalsh, svdvals

    if _is_thin(a) and _is_thin(b):
        return svdvals(_centred(a) @ _centred(b).T).sum()
    if _is_thin(b):
        a, b = b, a
    root = _centred(a) if _is_thin(a) else _root(a.covariance)
    return eigvalsh(root @ b.covariance @ root.T).clamp(min=0).sqrt().sum()


def _root(covariance: "Tensor") -> "Tensor":
    """R with R^T R = C: Cholesky where C is safely definite, else (4x the time) from its eigenvectors."""
    from torch.linalg import cholesky_ex, eigh

    factor, failed = cholesky_ex(covariance)
    if not failed:
        return factor.T
    values, vectors = eigh(covariance)
    return values.clamp(min=0).sqrt()[:, None] * vectors.T
