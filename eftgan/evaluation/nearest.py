"""Which earlier task has the most similar images: where a task with `init: nearest` starts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eftgan.data.collection import ImageCollection
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.metrics.fid import frechet_distance
from eftgan.evaluation.real_statistics import collect_statistics, evenly_spaced_crops
from eftgan.evaluation.statistics import FeatureStatistics

IMAGES = 500  # of each task, spread evenly over its images


@dataclass(frozen=True)
class Nearest:
    """The task that was chosen, and the distances of all that there were to choose from."""

    task: str
    distances: dict[str, float]

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {distance:.2f}" for name, distance in self.distances.items())
        return f"{self.task}, the nearest by FD-random ({figures})"


def nearest_earlier(images: Mapping[str, ImageCollection], wanted: Collection[str], size: int) -> dict[str, Nearest]:
    """For every wanted task the one before it of the least Fréchet distance; the first task has none and is left out.

    The features are those of the fixed random network, so the images alone decide, with nothing to download.
    """
    if not wanted:
        return {}
    extractor = load_extractor("random", device="cpu")  # there, so that all processes agree
    statistics: dict[str, FeatureStatistics] = {}
    found: dict[str, Nearest] = {}
    for name, own in images.items():
        count = min(IMAGES, len(own))
        here = collect_statistics(evenly_spaced_crops(own, count, size), count, extractor, progress=False)
        if statistics and name in wanted:
            distances = {other: frechet_distance(here, there) for other, there in statistics.items()}
            found[name] = Nearest(min(distances, key=lambda other: distances[other]), distances)
        statistics[name] = here
    return found
