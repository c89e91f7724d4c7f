"""Which metrics a report shows, and in which order."""

from eftgan.evaluation.metrics import METRICS, Metric
from eftgan.evaluation.metrics.selection import metric_named

NOT_A_MATRIX = {"growth"}  # has its own table


def metrics_in(names: set[str]) -> list[Metric]:
    """The metrics to show, known ones first; an unknown one counts as lower-is-better with 3 digits."""
    known = [metric for name, metric in METRICS.items() if name in names]
    further = sorted(names - set(METRICS) - NOT_A_MATRIX)
    return known + [metric_named(name) or Metric(name, lower_is_better=True, digits=3) for name in further]
