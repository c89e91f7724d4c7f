"""Density and coverage of generated images (Naeem et al. 2020), which outliers disturb less, k = 5."""

from typing import TYPE_CHECKING

from eftgan.evaluation.metrics.neighbours import NeighbourMetric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from eftgan.evaluation.statistics import FeatureStatistics


class Density(NeighbourMetric):
    """In how many balls around real images a generated one lies, over k: about 1 where both are of one kind."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        memberships = sum(int(block.sum()) for block in _in_balls(real, fake, self.k))
        return memberships / (self.k * len(fake.features)), None


class Coverage(NeighbourMetric):
    """The share of real images in whose ball a generated one lies."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        import torch

        covered = torch.stack([block.any(dim=0) for block in _in_balls(real, fake, self.k)]).any(dim=0)
        return covered.double().mean().item(), None


def _in_balls(real: "FeatureStatistics", fake: "FeatureStatistics", k: int) -> "Iterator[Tensor]":
    """Blocks (some generated images, all real ones); the rim is outside, as in the authors' code."""
    from eftgan.evaluation.neighbours import members, squared_radii

    return members(fake.features, real.features, squared_radii(real, k), closed=False)


DENSITY = Density(
    name="density",
    k=5,
    least_images=6,
    lower_is_better=False,
    digits=3,
    explanation="Density tells how closely generated pictures lie among real ones: in how many neighbourhoods of real "
    "pictures a generated one is, over their size (k = 5); it is near 1 for real pictures and can be higher",
)
COVERAGE = Coverage(
    name="coverage",
    k=5,
    least_images=6,
    lower_is_better=False,
    digits=3,
    explanation="Coverage is the share of real pictures that have a generated one in their neighbourhood, which "
    "reaches to the k-th nearest real picture (k = 5)",
)
DENSITY_RANDOM, COVERAGE_RANDOM = DENSITY.over_random(), COVERAGE.over_random()
