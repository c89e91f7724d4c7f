"""How different generated images are from each other: LPIPS (Zhang et al. 2018) of pairs, and its balanced form."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eftgan.evaluation.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from eftgan.evaluation.statistics import FeatureStatistics

IMAGES = 1000  # as many as the authors of B-LPIPS draw


@dataclass(frozen=True, kw_only=True)
class LpipsMetric(Metric):
    """What a metric on pairs of images has in common with the others."""

    features: str | None = "lpips"
    on_request: bool = True
    most_images: int | None = IMAGES


class LpipsDiversity(LpipsMetric):
    """The mean LPIPS distance over all pairs of generated images."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        from eftgan.evaluation.diversity import mean_of_pairs

        return mean_of_pairs(evenly(fake.features, IMAGES)), None


@dataclass(frozen=True, kw_only=True)
class BalancedLpips(LpipsMetric):
    """B-LPIPS (LFS-GAN, Seo et al. 2023): the diversity around each of a few real images, weighted by how evenly these
    are used: sum_i -p_i log10(p_i) d_i, where p_i is the share of generated images whose nearest real image is i, and
    d_i the mean LPIPS over pairs of them."""

    centres: int = 10  # real images, evenly spaced where there are more; with 10 the weights add up to 1 at most

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, None]:
        from eftgan.evaluation.diversity import balanced_diversity

        return balanced_diversity(evenly(real.features, self.centres), evenly(fake.features, IMAGES)), None


def evenly(images: "Tensor", most: int) -> "Tensor":
    """At most so many images, evenly spaced."""
    count = len(images)
    return images if count <= most else images[[i * count // most for i in range(most)]]


LPIPS_DIVERSITY = LpipsDiversity(
    name="LPIPS-diversity",
    group="lpips",
    lower_is_better=False,
    digits=3,
    explanation="LPIPS-diversity is the mean perceptual distance (LPIPS, VGG16) over all pairs of generated pictures: "
    "0 where all are the same; the real pictures' own value is the one to come near",
)
BALANCED_LPIPS = BalancedLpips(
    name="B-LPIPS",
    lower_is_better=False,
    digits=3,
    least_images=100,
    explanation="B-LPIPS is the diversity of generated pictures around each of 10 real ones, weighted by how evenly "
    "the generated pictures are spread over them: low where a generator repeats itself or knows few of the ten",
)
