"""How likely a task's own Gaussians find the features: a mean per class, one covariance for all."""

from typing import ClassVar

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Rule, Said

SHRINKAGE = 0.1  # share of the covariance that is replaced by the same variance in all directions


def fit_gaussians(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Means (classes, F), and the packed factor (F (F + 1) / 2,) of the shared precision.

    The covariance is that of the features around their class's mean, shrunk towards a multiple of the identity. L is
    the lower triangle with L L' = its inverse, of which only the entries that are not 0 are kept.
    """
    features = features.double()
    ones = torch.nn.functional.one_hot(labels, classes).double()
    means = (ones.T @ features) / ones.sum(0).clamp_min(1)[:, None]
    apart = features - means[labels]
    covariance = apart.T @ apart / len(features)
    size = covariance.shape[0]
    variance = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).eps)
    covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * variance * torch.eye(size, dtype=torch.float64)
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(covariance)))
    return means.float(), factor[tuple(torch.tril_indices(size, size))].float()


def squared_distances(features: Tensor, means: Tensor, packed: Tensor) -> Tensor:
    """Mahalanobis distances (N, classes), squared."""
    size = means.shape[1]
    factor = features.new_zeros(size, size)
    factor[tuple(torch.tril_indices(size, size))] = packed.to(features)
    whitened, centres = features @ factor, means.to(features) @ factor
    return (whitened[:, None] - centres[None]).square().sum(2)


class Density(Rule):
    """log sum_c exp(-d_c^2 / 2), d_c the Mahalanobis distance to class c (Lee et al., NeurIPS 2018).

    The likelihood of the features under a mixture of the task's classes, without the factor that is the same for all
    images: features of two networks are not measured in one unit, and `standardised` scores compare them.
    """

    name: ClassVar[str] = "density"
    explanation: ClassVar[str] = "whose classes' Gaussians find the features the likeliest"

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"features"})

    @property
    def keeps(self) -> tuple[str, ...]:
        return (f"{self.name}/means", f"{self.name}/precision")

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        assert own.features is not None
        found = fit_gaussians(own.features, labels, own.logits.shape[1])
        return dict(zip(self.keeps, found, strict=True))

    def score(self, said: Said) -> Tensor:
        assert said.features is not None
        return (-0.5 * squared_distances(said.features, *(said.kept[key] for key in self.keeps))).logsumexp(1)
