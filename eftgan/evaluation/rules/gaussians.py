"""Gaussians with one covariance, in the form that tasks keep: means, and a packed covariance or inverse."""

import torch
from torch import Tensor


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean (classes, F) of every class's features (N, F)."""
    ones = torch.nn.functional.one_hot(labels, classes).double()
    return ((ones.T @ features.double()) / ones.sum(0).clamp_min(1)[:, None]).float()


def packed_precision(apart: Tensor, shrinkage: float) -> Tensor:
    """From features (N, F) less their means: the factor of the inverse covariance, its lower triangle (F (F + 1) / 2,).

    A share of the covariance is replaced by the same variance in all directions. L is the triangle with L L' = its
    inverse, of which only the entries that are not 0 are kept.
    """
    return _packed_factor(_covariance(apart), shrinkage)


def pooled_covariance(apart: Tensor, before: Tensor | None, images: float) -> Tensor:
    """The covariance of features (N, F) less their means, its lower triangle (F (F + 1) / 2,).

    before: that of so many images before these, which counts by their number.
    """
    covariance, size = _covariance(apart), apart.shape[1]
    if before is not None:
        covariance = (images * _symmetric(before, size) + len(apart) * covariance) / (images + len(apart))
    return covariance[tuple(torch.tril_indices(size, size))].float()


def precision_of(packed: Tensor, size: int, shrinkage: float) -> Tensor:
    """The factor that `packed_precision` returns, from a packed covariance of so many features."""
    return _packed_factor(_symmetric(packed, size), shrinkage)


def _covariance(apart: Tensor) -> Tensor:
    apart = apart.double()
    return apart.T @ apart / len(apart)


def _symmetric(packed: Tensor, size: int) -> Tensor:
    lower = torch.zeros(size, size, dtype=torch.float64)
    lower[tuple(torch.tril_indices(size, size))] = packed.double().cpu()
    return lower + lower.tril(-1).T


def _packed_factor(covariance: Tensor, shrinkage: float) -> Tensor:
    size = covariance.shape[0]
    variance = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).eps)
    covariance = (1 - shrinkage) * covariance + shrinkage * variance * torch.eye(size, dtype=torch.float64)
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(covariance)))
    return factor[tuple(torch.tril_indices(size, size))].float()


def squared_distances(features: Tensor, means: Tensor, packed: Tensor) -> Tensor:
    """Mahalanobis distances (N, classes), squared, of features (N, F) from means (classes, F)."""
    size = means.shape[1]
    factor = torch.zeros(size, size, dtype=torch.float64)
    factor[tuple(torch.tril_indices(size, size))] = packed.double().cpu()
    whitened, centres = features.double().cpu() @ factor, means.double().cpu() @ factor
    squares = whitened.square().sum(1)[:, None] - 2 * whitened @ centres.T + centres.square().sum(1)
    return squares.clamp_min(0).float().to(features.device)
