"""The distances and the statistics that they are computed from, under one name."""

from eftgan.evaluation.metrics.fid import frechet_distance
from eftgan.evaluation.metrics.kid import kernel_distance
from eftgan.evaluation.statistics import FeatureStatistics

__all__ = ["FeatureStatistics", "frechet_distance", "kernel_distance"]
