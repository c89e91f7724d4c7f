"""A metric of somebody's own: one object in METRICS is enough to measure it and to report it."""

import pytest
import torch

from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.metrics import METRICS, Metric
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.scores import read_scores

from .page import report


class Precision(Metric):
    """The share of generated images that lie within the radius of a real one (Kynkäänniemi et al. 2019)."""

    def from_features(self, real, fake):
        others = torch.cdist(real.features, real.features).fill_diagonal_(torch.inf)
        inside = torch.cdist(fake.features, real.features) <= others.amin(1)
        return inside.any(1).float().mean().item(), None


PRECISION = Precision(
    name="precision-random",
    features="random",
    lower_is_better=False,
    digits=2,
    scale=100,
    unit=" %",
    explanation="Precision is the share of generated pictures that look like some real one",
)


def evaluate(run: GanRun) -> list[tuple[str, str, str]]:
    """Measure every task after every task; what had to be written: trained through, tested on, metric."""
    scorer = RunScorer(GanRun(run.folder.path), load_extractor("random"), 8, run.folder.path.parent / "cache")
    lines = [line for through in range(len(run.tasks)) for line in scorer.score(through)]
    return [(line.trained_through, line.tested_on, line.metric) for line in lines]


@pytest.fixture
def precision(monkeypatch):
    monkeypatch.setitem(METRICS, PRECISION.name, PRECISION)


def test_a_metric_from_outside_is_measured_and_reported(tiny, tmp_path, precision):
    run = train_gan(tiny(), "test")
    evaluate(run)
    lines = [line for line in read_scores(run.folder.scores) if line.metric == PRECISION.name]
    cells = [(line.trained_through, line.tested_on) for line in lines if line.trained_through in run.tasks]
    assert cells == [("discs", "discs"), ("checks", "checks")]
    assert not any("std" in line.details for line in lines)
    page = report([run.folder.path], tmp_path)
    row = page.table("precision-random in % of every seen task after each task t (higher is better)")[2]
    measured = dict(zip(cells, lines, strict=False))
    assert row[1] == f"{measured['discs', 'discs'].value * 100:.2f}"
    assert f"{PRECISION.explanation}." in page.text
    assert "Precision-random, task by task" in page.text


def test_a_metric_that_comes_later_is_measured_without_repeating_the_others(tiny, request):
    run = train_gan(tiny(), "test")
    assert {metric for _, _, metric in evaluate(run)} == {"FD-random", "KID-random", "unchanged"}
    request.getfixturevalue("precision")
    assert evaluate(run) == [
        ("discs", "discs", PRECISION.name),
        ("real", "discs", PRECISION.name),
        ("checks", "checks", PRECISION.name),
        ("real", "checks", PRECISION.name),
    ]
    assert evaluate(run) == []
