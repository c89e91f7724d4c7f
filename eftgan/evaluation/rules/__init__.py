"""Rules of task inference. A new one is a class and a line in RULES, where configs and commands find it."""

from eftgan.errors import UserError
from eftgan.evaluation.rules.base import Rule, Said
from eftgan.evaluation.rules.calibrated import Calibrated
from eftgan.evaluation.rules.combined import Combined
from eftgan.evaluation.rules.confidence import Energy, Entropy, Margin, MaxLogit, MaxSoftmax
from eftgan.evaluation.rules.density import Density

AUTO = "auto"  # entropy, or max-logit where the tasks share all but their heads

RULES: dict[str, Rule] = {
    rule.name: rule for rule in (Entropy(), MaxSoftmax(), MaxLogit(), Energy(), Margin(), Calibrated(), Density())
}

__all__ = ["AUTO", "RULES", "Rule", "Said", "rule_named"]


def rule_named(name: str, joined: bool = False) -> Rule:
    """The rule of a name; of NAME+NAME, the sum of their standardised scores.

    joined: whether the tasks share all but their heads, which `auto` goes by.
    """
    if name == AUTO:
        return RULES[MaxLogit.name if joined else Entropy.name]
    words = [word.strip() for word in name.split("+")]
    if unknown := [word for word in words if word not in RULES]:
        known = ", ".join([AUTO, *RULES])
        raise UserError(
            f"inference: no rule {unknown[0]!r}; there are {known}, and sums of them such as energy+density"
        )
    if len(words) == 1:
        return RULES[words[0]]
    return Combined([RULES[word] for word in words])
