"""Metrics, one per file. A new one is a file and a line in METRICS, where scoring, `eftgan fid` and reports find it.

Reports read these modules and need no torch: only the functions that compute a metric import it.
"""

from eftgan.evaluation.metrics.accuracy import ACCURACY, ACCURACY_CIL, ACCURACY_TIL, TASK_ACCURACY
from eftgan.evaluation.metrics.base import Metric
from eftgan.evaluation.metrics.density_coverage import COVERAGE, COVERAGE_RANDOM, DENSITY, DENSITY_RANDOM
from eftgan.evaluation.metrics.fid import FD_RANDOM, FID
from eftgan.evaluation.metrics.kid import KID, KID_RANDOM
from eftgan.evaluation.metrics.lpips import BALANCED_LPIPS, LPIPS_DIVERSITY
from eftgan.evaluation.metrics.precision_recall import PRECISION, PRECISION_RANDOM, RECALL, RECALL_RANDOM
from eftgan.evaluation.metrics.seconds import SECONDS

METRICS: dict[str, Metric] = {  # in the order in which reports show them
    "FID": FID,
    "FD-random": FD_RANDOM,
    "accuracy-CIL": ACCURACY_CIL,
    "accuracy-TIL": ACCURACY_TIL,
    "accuracy": ACCURACY,
    "task-accuracy": TASK_ACCURACY,
    "KID": KID,
    "KID-random": KID_RANDOM,
    "precision": PRECISION,
    "recall": RECALL,
    "density": DENSITY,
    "coverage": COVERAGE,
    "precision-random": PRECISION_RANDOM,
    "recall-random": RECALL_RANDOM,
    "density-random": DENSITY_RANDOM,
    "coverage-random": COVERAGE_RANDOM,
    "LPIPS-diversity": LPIPS_DIVERSITY,
    "B-LPIPS": BALANCED_LPIPS,
    "seconds": SECONDS,
}

__all__ = ["METRICS", "Metric", "metrics_over"]


def metrics_over(kind: str) -> list[Metric]:
    """The metrics that are measured on the features of one kind of extractor by default, in the order of METRICS."""
    return [metric for metric in METRICS.values() if metric.features == kind and not metric.on_request]
