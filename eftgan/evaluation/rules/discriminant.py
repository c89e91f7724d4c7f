"""A linear discriminant over the classes of all tasks, on statistics of the first task's feature maps."""

import functools
from typing import ClassVar

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Said
from eftgan.evaluation.rules.gaussians import class_means, pooled_covariance, precision_of, squared_distances
from eftgan.evaluation.rules.likelihood import Agreement, Likelihood

MEANS, COVARIANCE, IMAGES = "lda/means", "lda/covariance", "lda/images"
LEAST_SHRINKAGE = 1e-4


class Discriminant(Likelihood):
    """log sum_c exp(-d_c^2 / 2) in the space of map statistics, with the covariance of all tasks so far.

    Streaming linear discriminant analysis (Hayes and Kanan, CVPR Workshops 2020) that only says which task it is. The
    covariance is handed on: every task adds its images to it, and the newest one holds for all.
    """

    name: ClassVar[str] = "lda"
    explanation: ClassVar[str] = "whose classes are the likeliest by the statistics of the first task's feature maps"

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"statistics"})

    @property
    def keeps(self) -> tuple[str, ...]:
        return (MEANS,)

    @property
    def hands_on(self) -> tuple[str, ...]:
        return (COVARIANCE, IMAGES)

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        assert own.statistics is not None
        means = class_means(own.statistics, labels, own.logits.shape[1])
        before = float(own.kept.get(IMAGES, 0.0))
        covariance = pooled_covariance(own.statistics - means[labels], own.kept.get(COVARIANCE), before)
        return {MEANS: means, COVARIANCE: covariance, IMAGES: torch.tensor(before + len(labels))}

    def likelihoods(self, said: Said) -> Tensor:
        assert said.statistics is not None
        means = said.kept[MEANS]
        precision = _precision(said.kept[COVARIANCE], means.shape[1], float(said.kept[IMAGES]))
        return -0.5 * squared_distances(said.statistics, means, precision)


class JointDiscriminant(Agreement, Discriminant):
    """max_c (log softmax(z)_c - d_c^2 / 2): the task's network and the discriminant name the class together."""

    name: ClassVar[str] = "lda-joint"
    explanation: ClassVar[str] = "with the class that its own network and the discriminant find the likeliest together"


def shrinkage(size: int, images: float) -> float:
    """The share of equal variances in the covariance: all of it where there are few images for its size."""
    return float(min(1.0, max(LEAST_SHRINKAGE, 0.1 * (size / images) ** 4)))


@functools.lru_cache(maxsize=2)  # one covariance serves all tasks and image after image; tensors go by identity
def _precision(covariance: Tensor, size: int, images: float) -> Tensor:
    return precision_of(covariance, size, shrinkage(size, images))
