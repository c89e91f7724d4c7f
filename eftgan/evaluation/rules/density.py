"""How likely a task's own Gaussians find its features: a mean per class, one covariance for all."""

from typing import ClassVar

from torch import Tensor

from eftgan.evaluation.rules.base import Rule, Said
from eftgan.evaluation.rules.gaussians import class_means, packed_precision, squared_distances


class Density(Rule):
    """log sum_c exp(-d_c^2 / 2), d_c the Mahalanobis distance to class c (Lee et al., NeurIPS 2018).

    The likelihood of the features under a mixture of the task's classes, without the factor that is the same for all
    images: features of two networks are not measured in one unit, and standardised scores compare them.
    """

    name: ClassVar[str] = "density"
    explanation: ClassVar[str] = "whose classes' Gaussians find the features the likeliest"
    shrinkage: ClassVar[float] = 0.1

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"features"})

    @property
    def keeps(self) -> tuple[str, ...]:
        return (f"{self.name}/means", f"{self.name}/precision")

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        assert own.features is not None
        means = class_means(own.features, labels, own.logits.shape[1])
        found = means, packed_precision(own.features - means[labels], self.shrinkage)
        return dict(zip(self.keeps, found, strict=False))

    def score(self, said: Said) -> Tensor:
        assert said.features is not None
        means, precision, *_ = (said.kept[key] for key in self.keeps)
        return (-0.5 * squared_distances(said.features, means, precision)).logsumexp(1)


class Relative(Density):
    """The same, less the likelihood under one Gaussian of all the task's images (Ren et al. 2021).

    What makes any image unlikely, whatever its task, is in both and cancels.
    """

    name: ClassVar[str] = "relative"
    explanation: ClassVar[str] = "whose classes' Gaussians find the features likelier than one for the whole task does"
    shrinkage: ClassVar[float] = 0.5

    @property
    def keeps(self) -> tuple[str, ...]:
        return (*super().keeps, f"{self.name}/mean", f"{self.name}/whole")

    def fit(self, own: Said, labels: Tensor) -> dict[str, Tensor]:
        assert own.features is not None
        mean = own.features.double().mean(0, keepdim=True).float()
        whole = packed_precision(own.features - mean, self.shrinkage)
        return super().fit(own, labels) | dict(zip(self.keeps[-2:], (mean, whole), strict=True))

    def score(self, said: Said) -> Tensor:
        assert said.features is not None
        mean, whole = (said.kept[key] for key in self.keeps[-2:])
        return super().score(said) + 0.5 * squared_distances(said.features, mean, whole)[:, 0]
