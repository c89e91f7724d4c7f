"""Precision and recall of generated images (Kynkäänniemi et al. 2019, improved precision and recall), k = 3."""

from typing import TYPE_CHECKING

from eftgan.evaluation.metrics.neighbours import NeighbourMetric

if TYPE_CHECKING:
    from eftgan.evaluation.statistics import FeatureStatistics


class Precision(NeighbourMetric):
    """The share of generated images that lie in the ball of some real one."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        return share_within(fake, real, self.k), None


class Recall(NeighbourMetric):
    """The share of real images that lie in the ball of some generated one."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        return share_within(real, fake, self.k), None


def share_within(points: "FeatureStatistics", centres: "FeatureStatistics", k: int) -> float:
    """The share of points in at least one ball around the centres, the rim included as in the authors' code."""
    import torch

    from eftgan.evaluation.neighbours import members, squared_radii

    blocks = members(points.features, centres.features, squared_radii(centres, k), closed=True)
    return torch.cat([block.any(dim=1) for block in blocks]).double().mean().item()


PRECISION = Precision(
    name="precision",
    k=3,
    least_images=4,
    lower_is_better=False,
    digits=3,
    explanation="Precision is the share of generated pictures that lie near real ones: within the distance of a real "
    "picture to its k-th nearest (k = 3)",
)
RECALL = Recall(
    name="recall",
    k=3,
    least_images=4,
    lower_is_better=False,
    digits=3,
    explanation="Recall is the share of real pictures that lie near generated ones: within the distance of a generated "
    "picture to its k-th nearest (k = 3)",
)
PRECISION_RANDOM, RECALL_RANDOM = PRECISION.over_random(), RECALL.over_random()
