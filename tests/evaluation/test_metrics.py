"""The list of metrics: what scoring, `eftgan fid` and reports find there."""

import pytest

from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.metrics import METRICS, Metric, metrics_over
from eftgan.evaluation.metrics.selection import (
    by_features,
    metric_named,
    metrics_named,
    most_images_over,
    names_to_ask_for,
)


def test_every_metric_is_listed_under_its_own_name():
    assert {name: metric.name for name, metric in METRICS.items()} == {name: name for name in METRICS}


def test_the_metrics_of_an_extractor_come_in_the_order_of_the_list():
    assert [metric.name for metric in metrics_over("inception")] == ["FID", "KID"]
    assert [metric.name for metric in metrics_over(load_extractor("random").kind)] == ["FD-random", "KID-random"]
    assert metrics_over("vgg") == []


def names(words: str) -> list[str]:
    return [metric.name for metric in metrics_named(words)]


def test_metrics_are_asked_for_by_name_by_group_and_with_another_number_of_neighbours():
    assert names("fid") == ["FID"]
    assert names("kid, prdc ,FID") == ["KID", "precision", "recall", "density", "coverage", "FID"]
    assert names("recall,prdc-k5") == ["recall", "precision-k5", "recall-k5", "density", "coverage"]
    assert names("lpips,b-lpips,precision-random-k2") == ["LPIPS-diversity", "B-LPIPS", "precision-random-k2"]
    (wide,) = metrics_named("coverage-k12")
    assert (wide.k, wide.least_images, wide.features) == (12, 13, "inception")
    assert "(k = 12)" in wide.explanation


def test_every_name_that_is_offered_can_be_asked_for():
    for name in names_to_ask_for():
        assert names(name)
    assert {"fid", "prdc", "prdc-random", "lpips", "b-lpips"} <= set(names_to_ask_for())


def test_the_metric_of_a_score_line_is_found_again():
    assert metric_named("recall-k10") == metrics_named("recall-k10")[0]
    assert metric_named("FID") is METRICS["FID"]
    assert metric_named("fid") is metric_named("recall-k010") is metric_named("own") is None


def test_metrics_over_one_network_are_measured_together():
    found = by_features(metrics_named("lpips,fid,b-lpips,recall"))
    assert {kind: [metric.name for metric in metrics] for kind, metrics in found.items()} == {
        "lpips": ["LPIPS-diversity", "B-LPIPS"],
        "inception": ["FID", "recall"],
    }
    assert [most_images_over(kind) for kind in ("inception", "random", "lpips", "own")] == [None, None, 1000, None]


def test_a_metric_that_is_not_of_features_says_so():
    with pytest.raises(NotImplementedError, match="seconds is not computed from features"):
        METRICS["seconds"].from_features(None, None)


@pytest.mark.parametrize(
    ("value", "std", "text", "single"),
    [
        (1.26, None, "1.3", "1.260"),
        (1.26, 0.5, "1.3 ± 0.5", "1.260 ± 0.500"),
        (-0.01, None, "0.0", "-0.010"),
        (float("nan"), None, "not finite", "not finite"),
        (1e308, 1e308, "1.0e+308 ± 1.0e+308", "1.000e+308 ± 1.000e+308"),
        (-2e9, None, "-2.0e+09", "-2.000e+09"),
    ],
)
def test_values_as_text(value, std, text, single):
    metric = Metric("any", lower_is_better=True, digits=1)
    assert metric.text(value, std) == text
    assert metric.single_text(value, std) == single


def test_differences_have_their_sign_and_shares_are_per_cent():
    accuracy = METRICS["accuracy"]
    assert accuracy.text(0.0312, sign=True) == "+3.1"
    assert accuracy.text(-0.0001, sign=True) == "0.0"
    assert accuracy.text(None) == "–"
