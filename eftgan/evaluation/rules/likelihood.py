"""Rules that ask how likely each class finds an image, in a space that is one for all tasks."""

from typing import ClassVar

from torch import Tensor

from eftgan.evaluation.rules.base import Rule, Said


class Likelihood(Rule):
    """log sum_c of the likelihoods of a task's classes."""

    comparable: ClassVar[bool] = True

    def likelihoods(self, said: Said) -> Tensor:
        """Logarithms (N, classes), without the factor that is the same for all classes of all tasks."""
        raise NotImplementedError

    def score(self, said: Said) -> Tensor:
        return self.likelihoods(said).logsumexp(1)


class Agreement(Likelihood):
    """max_c (log softmax(z)_c + log likelihood of c): the task's own network has a say in the class.

    Comes before the rule that has the likelihoods.
    """

    def class_scores(self, said: Said) -> Tensor:
        return said.logits.log_softmax(1) + self.likelihoods(said)

    def score(self, said: Said) -> Tensor:
        return self.class_scores(said).amax(1)
