"""Kernel distance of image features: KID (Bińkowski et al. 2018), and the same over a small random network."""

from typing import TYPE_CHECKING

from eftgan.errors import UserError
from eftgan.evaluation.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from eftgan.evaluation.statistics import FeatureStatistics


class KernelDistance(Metric):
    """The squared maximum mean discrepancy; its spread is that over random subsets of the images."""

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, float]:
        return kernel_distance(real.features, fake.features)


KID = KernelDistance(name="KID", features="inception", lower_is_better=True, digits=4, single_digits=5)
KID_RANDOM = KernelDistance(name="KID-random", features="random", lower_is_better=True, digits=3)


def kernel_distance(
    features_a: "Tensor", features_b: "Tensor", *, subsets: int = 100, subset_size: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Mean and standard deviation of the unbiased squared MMD, kernel (x.y / dims + 1)^3, over subsets.

    Subsets hold at most half of the smaller side: larger ones would be nearly the same set each time,
    and their spread would promise a certainty that is not there.
    """
    import torch

    fewest = min(len(features_a), len(features_b))
    if fewest < 2:
        raise UserError(f"a distance needs at least 2 images on each side; one side has {fewest}")
    size = max(2, min(subset_size, fewest // 2))
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(subsets):
        x = features_a[torch.randperm(len(features_a), generator=generator)[:size]]
        y = features_b[torch.randperm(len(features_b), generator=generator)[:size]]
        values.append(_squared_mmd(x, y))
    result = torch.tensor(values, dtype=torch.float64)
    return result.mean().item(), result.std(correction=0).item()


def _squared_mmd(x: "Tensor", y: "Tensor") -> float:
    m = len(x)
    within_x, within_y, between = _kernel(x, x), _kernel(y, y), _kernel(x, y)
    within = (within_x.sum() - within_x.trace() + within_y.sum() - within_y.trace()) / (m * (m - 1))
    return (within - 2 * between.mean()).item()


def _kernel(x: "Tensor", y: "Tensor") -> "Tensor":
    return ((x @ y.T).double() / x.shape[1] + 1) ** 3
