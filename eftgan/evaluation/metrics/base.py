"""The interface of a metric: what its values mean, how they are printed and how they are computed."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eftgan.evaluation.statistics import FeatureStatistics


@dataclass(frozen=True)
class Metric:
    """One metric. Reports read the fields; a metric over image features overrides `from_features` as well."""

    name: str  # in score lines and tables
    lower_is_better: bool
    digits: int  # in tables
    scale: float = 1.0  # from the value in the score line to the printed one
    unit: str = ""
    main: bool = False  # gets figures as well as a table
    setting: str = ""  # what is asked of a classifier, where one metric does not tell all: "task-incremental"
    by_rule: bool = False  # depends on the rule by which tasks are inferred
    explanation: str = ""  # a sentence without its full stop, for readers who do not know the metric
    depends_on_n: bool = False  # biased, the more so the fewer images: values of different N do not compare
    features: str | None = None  # what it is measured on, if on images: a kind of extractor, "inception" for example
    on_request: bool = False  # measured where it is asked for by name, not by default
    group: str = ""  # a word that asks for it, mostly together with others: "prdc"
    most_images: int | None = None  # of more images than these it looks at so many
    least_images: int = 2  # on each side, for a value that says something
    single_digits: int | None = None  # where one value stands alone, as in `eftgan fid` (default: two more)

    @property
    def direction(self) -> str:
        return "lower is better" if self.lower_is_better else "higher is better"

    def from_features(self, real: "FeatureStatistics", fake: "FeatureStatistics") -> tuple[float, float | None]:
        """The value for generated images against real ones, and the measurement's own spread if it has one.

        Both sides offer `n`, `mean`, `covariance` and, of up to 5,000 images, `features` (N, dims); over an extractor
        that leaves images as they are, `features` are the images, uint8 (N, 3, H, W), and there are no moments.
        """
        raise NotImplementedError(f"{self.name} is not computed from features")

    def looked_at(self, n: int) -> int:
        """How many of `n` images a value is based on."""
        return n if self.most_images is None else min(n, self.most_images)

    def text(self, value: float | None, std: float | None = None, *, sign: bool = False) -> str:
        """A value (of the score line's scale) as tables print it, with its spread where there is one."""
        if value is None:
            return "–"
        shown = self._number(value, self.digits, "+" if sign else "")
        return shown if std is None else f"{shown} ± {self._number(std, self.digits)}"

    def single_text(self, value: float, std: float | None = None) -> str:
        """A value that is not compared with others beside it: in more digits."""
        digits = self.digits + 2 if self.single_digits is None else self.single_digits
        shown = self._number(value, digits)
        return shown if std is None else f"{shown} ± {self._number(std, digits)}"

    def _number(self, value: float, digits: int, sign: str = "") -> str:
        scaled = value * self.scale
        if not math.isfinite(scaled):
            return "not finite"
        if abs(scaled) >= 1e9:  # 1e308 would be 309 digits wide
            return f"{scaled:{sign}.{digits}e}"
        shown = f"{scaled:{sign}.{digits}f}"
        return shown.lstrip("+-") if float(shown) == 0 else shown
