"""Rules of task inference. A new one is a class and a line in RULES, where configs and commands find it."""

from eftgan.errors import UserError
from eftgan.evaluation.rules.base import Rule, Said
from eftgan.evaluation.rules.calibrated import Calibrated
from eftgan.evaluation.rules.combined import Combined
from eftgan.evaluation.rules.common import Common, Joint
from eftgan.evaluation.rules.confidence import Energy, Entropy, Margin, MaxLogit, MaxSoftmax
from eftgan.evaluation.rules.density import Density, Relative
from eftgan.evaluation.rules.discriminant import (
    Discriminant,
    JointDiscriminant,
    JointTextureDiscriminant,
    TextureDiscriminant,
)
from eftgan.names import AUTO  # entropy, or max-logit where the tasks share all but their heads

STANDARDISED = "z-"  # before the name of a rule

RULES: dict[str, Rule] = {
    "entropy": Entropy(),
    "max-softmax": MaxSoftmax(),
    "max-logit": MaxLogit(),
    "energy": Energy(),
    "margin": Margin(),
    "calibrated": Calibrated(),
    "density": Density(),
    "relative": Relative(),
    "common": Common(),
    "joint": Joint(),
    "lda": Discriminant(),
    "lda-joint": JointDiscriminant(),
    "texture": TextureDiscriminant(),
    "texture-joint": JointTextureDiscriminant(),
}

__all__ = ["AUTO", "RULES", "Rule", "Said", "rule_named"]


def rule_named(name: str, joined: bool = False) -> Rule:
    """The rule of a name; of z-NAME, its standardised score; of NAME+NAME, the sum of such.

    joined: whether the tasks share all but their heads, which `auto` goes by.
    """
    if name == AUTO:
        return RULES[MaxLogit.name if joined else Entropy.name]
    words = [word.strip().removeprefix(STANDARDISED) for word in name.split("+")]
    if unknown := [word for word in words if word not in RULES]:
        raise UserError(
            f"inference: no rule {unknown[0]!r}; there are {', '.join([AUTO, *RULES])}, z-NAME for one that is "
            "standardised, and sums such as entropy+lda-joint"
        )
    return RULES[name] if words == [name] else Combined([RULES[word] for word in words])
