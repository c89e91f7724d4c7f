"""How likely each task's classes find the image in one space for all: the first task's network."""

from typing import ClassVar

from torch import Tensor

from eftgan.evaluation.rules.base import Said
from eftgan.evaluation.rules.gaussians import class_means, packed_precision, squared_distances
from eftgan.evaluation.rules.likelihood import Agreement, Likelihood


class Common(Likelihood):
    """log sum_c exp(-d_c^2 / 2) of the image's features in the network of the first task, which never changes.

    Every task keeps the means of its classes there; the covariance around them is the first task's. Likelihoods are
    then comparable between tasks: a linear discriminant over the classes of all, as in streaming LDA (Hayes and Kanan
    2020), that only says which task it is.
    """

    name: ClassVar[str] = "common"
    explanation: ClassVar[str] = "whose classes are the likeliest in the first task's network"
    shrinkage: ClassVar[float] = 0.001

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"common"})

    @property
    def keeps(self) -> tuple[str, ...]:
        return (f"{self.name}/means",)

    @property
    def first_keeps(self) -> tuple[str, ...]:
        return (f"{self.name}/precision",)

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        assert own.common is not None
        means = class_means(own.common, labels, own.logits.shape[1])
        kept = {self.keeps[0]: means}
        if self.first_keeps[0] not in own.kept:
            kept[self.first_keeps[0]] = packed_precision(own.common - means[labels], self.shrinkage)
        return kept

    def likelihoods(self, said: Said) -> Tensor:
        assert said.common is not None
        means, precision = said.kept[self.keeps[0]], said.kept[self.first_keeps[0]]
        return -0.5 * squared_distances(said.common, means, precision)


class Joint(Agreement, Common):
    """max_c (log softmax(z)_c - d_c^2 / 2): both networks must agree on the class, and they name it together."""

    name: ClassVar[str] = "joint"
    explanation: ClassVar[str] = "with the class that its own network and the first task's find the likeliest together"

    @property
    def keeps(self) -> tuple[str, ...]:
        return Common().keeps

    @property
    def first_keeps(self) -> tuple[str, ...]:
        return Common().first_keeps
