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


class Novelty(Metric):
    """The share of generated images that are farther from every real one than that is from its nearest other."""

    def from_features(self, real, fake):
        others = torch.cdist(real.features, real.features).fill_diagonal_(torch.inf)
        inside = torch.cdist(fake.features, real.features) <= others.amin(1)
        return 1 - inside.any(1).float().mean().item(), None


NOVELTY = Novelty(
    name="novelty-random",
    features="random",
    lower_is_better=False,
    digits=2,
    scale=100,
    unit=" %",
    explanation="Novelty is the share of generated pictures that look like no real one",
)


def evaluate(run: GanRun) -> list[tuple[str, str, str]]:
    """Measure every task after every task; what had to be written: trained through, tested on, metric."""
    scorer = RunScorer(GanRun(run.folder.path), load_extractor("random"), 8, run.folder.path.parent / "cache")
    lines = [line for through in range(len(run.tasks)) for line in scorer.score(through)]
    return [(line.trained_through, line.tested_on, line.metric) for line in lines]


@pytest.fixture
def novelty(monkeypatch):
    monkeypatch.setitem(METRICS, NOVELTY.name, NOVELTY)


def test_a_metric_from_outside_is_measured_and_reported(tiny, tmp_path, novelty):
    run = train_gan(tiny(), "test")
    evaluate(run)
    lines = [line for line in read_scores(run.folder.scores) if line.metric == NOVELTY.name]
    cells = [(line.trained_through, line.tested_on) for line in lines if line.trained_through in run.tasks]
    assert cells == [("discs", "discs"), ("checks", "checks")]
    assert not any("std" in line.details for line in lines)
    page = report([run.folder.path], tmp_path)
    row = page.table("novelty-random in % of every seen task after each task t (higher is better)")[2]
    measured = dict(zip(cells, lines, strict=False))
    assert row[1] == f"{measured['discs', 'discs'].value * 100:.2f}"
    assert f"{NOVELTY.explanation}." in page.text
    assert "Novelty-random, task by task" in page.text


def test_a_metric_that_comes_later_is_measured_without_repeating_the_others(tiny, request):
    run = train_gan(tiny(), "test")
    assert {metric for _, _, metric in evaluate(run)} == {"FD-random", "KID-random", "unchanged"}
    request.getfixturevalue("novelty")
    assert evaluate(run) == [
        ("discs", "discs", NOVELTY.name),
        ("real", "discs", NOVELTY.name),
        ("checks", "checks", NOVELTY.name),
        ("real", "checks", NOVELTY.name),
    ]
    assert evaluate(run) == []
