"""Precision, recall, density and coverage: hand cases, a plain implementation, and what theory expects."""

import math

import pytest
import torch

from eftgan.errors import UserError
from eftgan.evaluation import neighbours
from eftgan.evaluation.metrics import METRICS
from eftgan.evaluation.statistics import FeatureStatistics

NAMES = ("precision", "recall", "density", "coverage")


def statistics(rows: torch.Tensor) -> FeatureStatistics:
    return FeatureStatistics.from_features(rows.float())


def measure(name: str, real: torch.Tensor, fake: torch.Tensor, k: int | None = None) -> float:
    metric = METRICS[name] if k is None else METRICS[name].with_neighbours(k)
    value, spread = metric.from_features(statistics(real), statistics(fake))
    assert spread is None
    return value


def plain(real: torch.Tensor, fake: torch.Tensor, k: int) -> dict[str, float]:
    """The authors' formulas, pair by pair."""

    def radius(points: list[list[float]], i: int) -> float:
        return sorted(math.dist(points[i], other) for j, other in enumerate(points) if j != i)[k - 1]

    x, y = real.double().tolist(), fake.double().tolist()
    around_x, around_y = [radius(x, i) for i in range(len(x))], [radius(y, j) for j in range(len(y))]
    between = [[math.dist(p, q) for q in y] for p in x]
    ii, jj = range(len(x)), range(len(y))
    return {
        "precision": sum(any(between[i][j] <= around_x[i] for i in ii) for j in jj) / len(y),
        "recall": sum(any(between[i][j] <= around_y[j] for j in jj) for i in ii) / len(x),
        "density": sum(between[i][j] < around_x[i] for i in ii for j in jj) / (k * len(y)),
        "coverage": sum(any(between[i][j] < around_x[i] for j in jj) for i in ii) / len(x),
    }


def cloud(n: int, dims: int = 6, seed: int = 0, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(n, dims, generator=torch.Generator().manual_seed(seed)) + shift


def test_four_points_on_a_line_by_hand():
    real, fake = torch.tensor([[0.0], [1.0], [3.0], [6.0]]), torch.tensor([[0.5], [2.0], [9.0], [20.0]])
    # k = 1: radii of the real points 1, 1, 2, 3, of the generated ones 1.5, 1.5, 7, 11
    assert measure("precision", real, fake, k=1) == 3 / 4  # 9 lies on the rim of 6, 20 nowhere
    assert measure("recall", real, fake, k=1) == 1.0
    assert measure("density", real, fake, k=1) == 3 / 4  # 0.5 lies in two balls and 2 in one, on the rim of another
    assert measure("coverage", real, fake, k=1) == 3 / 4  # no one lies within 3 of 6, but on its rim


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_values_are_those_of_the_authors_formulas_pair_by_pair(monkeypatch, k, shift):
    monkeypatch.setattr(neighbours, "CHUNK", 7)
    real, fake = cloud(40), cloud(31, seed=1, shift=shift)
    expected = plain(real, fake, k)
    assert {name: measure(name, real, fake, k) for name in NAMES} == pytest.approx(expected, abs=1e-12)
    assert 0 < expected["precision"] < 1


def test_the_usual_neighbours_are_the_authors_own():
    assert {name: METRICS[name].k for name in NAMES} == {"precision": 3, "recall": 3, "density": 5, "coverage": 5}


def test_two_sets_of_one_kind_have_the_values_that_theory_expects():
    n = 600
    real, fake = cloud(n, dims=2), cloud(n, dims=2, seed=1)
    assert measure("density", real, fake) == pytest.approx(1, abs=0.1)  # both after Naeem et al. 2020
    covered = 1 - math.prod((n - i) / (2 * n - i) for i in range(1, 6))
    assert measure("coverage", real, fake) == pytest.approx(covered, abs=0.03)


def test_a_generator_that_repeats_one_real_image_is_precise_and_recalls_that_one_alone():
    real = cloud(50, dims=32) * 10 + 100
    fake = real[7:8].repeat(20, 1)
    assert measure("precision", real, fake) == 1.0
    assert measure("recall", real, fake) == 1 / 50
    assert measure("coverage", real, fake) < 0.5
    assert measure("coverage", real, real) == 1.0


def test_neighbours_are_searched_once_for_all_metrics(monkeypatch):
    searched = []
    search = neighbours._search
    monkeypatch.setattr(neighbours, "_search", lambda rows, count: (searched.append(len(rows)), search(rows, count))[1])
    real, fake = statistics(cloud(40)), statistics(cloud(30, seed=1))
    for name in NAMES:
        METRICS[name].from_features(real, fake)
    assert searched == [40, 30]
    real.update(cloud(5, seed=2))
    METRICS["coverage"].from_features(real, fake)
    assert searched == [40, 30, 45]


@pytest.mark.parametrize(
    ("name", "few", "least"), [("precision", "real", 4), ("recall", "fake", 4), ("coverage", "real", 6)]
)
def test_too_few_images_are_refused_with_the_number_that_is_needed(name, few, least):
    sides = {"real": cloud(20), "fake": cloud(20, seed=1)}
    sides[few] = sides[few][: least - 1]
    with pytest.raises(UserError, match=f"at least {least} images on each side; one side has {least - 1}"):
        measure(name, sides["real"], sides["fake"])
    sides[few] = cloud(least)
    assert 0 <= measure(name, sides["real"], sides["fake"]) <= 1


def test_moments_without_features_are_refused():
    moments = FeatureStatistics.from_moments(torch.zeros(6), torch.eye(6), n=100)
    with pytest.raises(UserError, match="none were kept"):
        METRICS["precision"].from_features(statistics(cloud(20)), moments)
