"""How long the training of a task took."""

from eftgan.evaluation.metrics.base import Metric

SECONDS = Metric(name="seconds", lower_is_better=True, digits=1, unit=" s")
