"""What is chosen on a page, as what is drawn and as what one would type for it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from eftgan.adapters import BASE, Shares, at_strength
from eftgan.demo.studio import Order
from eftgan.gan.latent import Subject
from eftgan.names import BASE_NAME

NO_PARTNER = "none"
BASE_CHOICE = "base network"  # no task can have such a name
UNTRUNCATED = 3.0  # the end of the slider: noise is not limited


@dataclass(frozen=True)
class Still:
    """A grid: a task, or a mix of two, at a strength."""

    task: str
    partner: str = NO_PARTNER
    share: float = 0.5  # of the partner
    strength: float = 1.0

    @property
    def is_mix(self) -> bool:
        return self.partner not in (NO_PARTNER, self.task)

    def subject(self) -> Subject:
        shares: Shares = {self.task: 1.0}
        if self.is_mix:
            shares = {self.task: 1 - self.share, self.partner: self.share}
        return Subject(self.task, (shares if self.strength == 1 else at_strength(shares, self.strength),))

    def words(self) -> list[str]:
        words = ["--task", self.task]
        if self.is_mix:
            words = ["--mix", f"{self.task}:{1 - self.share:g},{self.partner}:{self.share:g}"]
        return words + ([] if self.strength == 1 else ["--strength", f"{self.strength:g}"])


@dataclass(frozen=True)
class Way:
    """An interpolation: of one task from noise to noise, or with one noise from task to task."""

    task: str
    target: str | None = None

    def subject(self) -> Subject:
        if self.target is None:
            return Subject(self.task, ({self.task: 1.0},))
        end = BASE if self.target == BASE_CHOICE else self.target
        return Subject(self.task, ({self.task: 1.0}, {end: 1.0}))

    def words(self) -> list[str]:
        if self.target is None:
            return ["--task", self.task]
        return ["--across", f"{self.task},{BASE_NAME if self.target == BASE_CHOICE else self.target}"]


def order(count: float, seed: float | None, truncation: float = UNTRUNCATED) -> Order:
    """From the controls of a page, which give any number, or none."""
    limit = truncation if truncation < UNTRUNCATED else None
    return Order(max(1, int(count)), abs(int(seed or 0)), limit)


def command_words(folder: Path, what: Still | Way, wanted: Order, steps: int | None = None) -> list[str]:
    """What one would type for the same pictures."""
    words = ["eftgan", "sample", shlex.quote(str(folder)), *what.words(), "--n", str(wanted.count)]
    words += ["--seed", str(wanted.seed)]
    if wanted.truncation is not None:
        words += ["--truncation", f"{wanted.truncation:g}"]
    if steps is not None:
        words += ["--interpolate", str(steps), "--out", "way.webp"]
    return words
