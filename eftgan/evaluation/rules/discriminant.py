"""A linear discriminant over the classes of all tasks, on statistics of the first task's feature maps."""

import functools
from typing import ClassVar

import torch
from torch import Tensor

from eftgan.evaluation.rules.base import Said
from eftgan.evaluation.rules.gaussians import class_means, pooled_covariance, precision_of, squared_distances
from eftgan.evaluation.rules.likelihood import Agreement, Likelihood

LEAST_SHRINKAGE = 1e-4


class Discriminant(Likelihood):
    """log sum_c exp(-d_c^2 / 2) in the space of map statistics, with the covariance of all tasks so far.

    Streaming linear discriminant analysis (Hayes and Kanan, CVPR Workshops 2020) that only says which task it is. The
    covariance is handed on: every task adds its images to it, and the newest one holds for all.
    """

    name: ClassVar[str] = "lda"
    explanation: ClassVar[str] = "whose classes are the likeliest by the statistics of the first task's feature maps"
    space: ClassVar[str] = "statistics"
    means: ClassVar[str] = "lda/means"  # names of what is kept
    covariance: ClassVar[str] = "lda/covariance"
    images: ClassVar[str] = "lda/images"

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({self.space})

    @property
    def keeps(self) -> tuple[str, ...]:
        return (self.means,)

    @property
    def hands_on(self) -> tuple[str, ...]:
        return (self.covariance, self.images)

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        vectors = self._vectors(own)
        means = class_means(vectors, labels, own.logits.shape[1])
        before = float(own.kept.get(self.images, 0.0))
        covariance = pooled_covariance(vectors - means[labels], own.kept.get(self.covariance), before)
        return {self.means: means, self.covariance: covariance, self.images: torch.tensor(before + len(labels))}

    def likelihoods(self, said: Said) -> Tensor:
        means = said.kept[self.means]
        precision = _precision(said.kept[self.covariance], means.shape[1], float(said.kept[self.images]))
        return -0.5 * squared_distances(self._vectors(said), means, precision)

    def _vectors(self, said: Said) -> Tensor:
        """The images in the rule's space (N, M)."""
        vectors = getattr(said, self.space)
        assert isinstance(vectors, Tensor)
        return vectors


class JointDiscriminant(Agreement, Discriminant):
    """max_c (log softmax(z)_c - d_c^2 / 2): the task's network and the discriminant name the class together."""

    name: ClassVar[str] = "lda-joint"
    explanation: ClassVar[str] = "with the class that its own network and the discriminant find the likeliest together"


class TextureDiscriminant(Discriminant):
    """The same in a larger space, with the correlations of the largest map's channels: the texture of an image."""

    name: ClassVar[str] = "texture"
    explanation: ClassVar[str] = "whose classes are the likeliest by statistics and textures of the first task's maps"
    space: ClassVar[str] = "textures"
    means: ClassVar[str] = "texture/means"
    covariance: ClassVar[str] = "texture/covariance"
    images: ClassVar[str] = "texture/images"


class JointTextureDiscriminant(Agreement, TextureDiscriminant):
    """max_c (log softmax(z)_c - d_c^2 / 2), with the distances of the larger space."""

    name: ClassVar[str] = "texture-joint"
    explanation: ClassVar[str] = "with the class that its own network and the textures' discriminant agree on"


def shrinkage(size: int, images: float) -> float:
    """The share of equal variances in the covariance: all of it where there are few images for its size."""
    return float(min(1.0, max(LEAST_SHRINKAGE, 0.1 * (size / images) ** 4)))


@functools.lru_cache(maxsize=2)  # one covariance serves all tasks and image after image; tensors go by identity
def _precision(covariance: Tensor, size: int, images: float) -> Tensor:
    return precision_of(covariance, size, shrinkage(size, images))
