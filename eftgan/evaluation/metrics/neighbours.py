"""What metrics over nearest neighbours share: the number of neighbours, and names that say it."""

from dataclasses import dataclass, replace
from typing import TypeVar

from eftgan.evaluation.metrics.base import Metric

KEPT = 5000  # as many features are kept of a collection: see eftgan.evaluation.statistics
AnyMetric = TypeVar("AnyMetric", bound="NeighbourMetric")


@dataclass(frozen=True, kw_only=True)
class NeighbourMetric(Metric):
    """A metric over balls, one around every image, that reach to its k-th nearest neighbour in feature space."""

    k: int
    features: str | None = "inception"
    on_request: bool = True
    group: str = "prdc"
    depends_on_n: bool = True
    most_images: int | None = KEPT

    def with_neighbours(self: AnyMetric, k: int) -> AnyMetric:
        """The same with another k, which its name then says: values of different k do not compare."""
        if k == self.k:
            return self
        told = self.explanation.replace(f"k = {self.k}", f"k = {k}")
        name, group = f"{self.name}-k{k}", f"{self.group}-k{k}"
        return replace(self, name=name, group=group, k=k, least_images=k + 1, explanation=told)

    def over_random(self: AnyMetric) -> AnyMetric:
        """The same over the small random network."""
        told = f"{self.explanation}, over a small fixed random network"
        name, group = f"{self.name}-random", f"{self.group}-random"
        return replace(self, name=name, group=group, features="random", explanation=told)
