import pytest

from eftgan.reports.growth import Growth
from eftgan.reports.results import studies
from eftgan.reports.runs import load_runs
from eftgan.scores import Score, append_scores

NAMES = ("base_parameters", "adapter_parameters", "norm_parameters", "head_parameters")


@pytest.mark.parametrize(
    ("counts", "totals", "share"),
    [
        ((100, 4, 2, 1), [1.04, 1.11, 1.18], 0.04),  # EFT: the base's own norm and head are only the first pattern
        ((100, 0, 2, 0), [1.00, 1.02, 1.04], 0.0),  # MeRGAN: normalisation
        ((100, 0, 0, 0), [1.00, 1.00, 1.00], 0.0),
        ((100, 0, 10, 90), [1.00, 2.00, 3.00], 1.0),  # nothing in common
    ],
)
def test_parameters_in_use_are_counted_once(counts, totals, share):
    base, adapters, *_ = counts
    details = dict(zip(NAMES, counts, strict=True))
    growth = Growth("any", ("a", "b", "c"), (adapters / base,) * 3, (details,) * 3)
    assert growth.totals() == pytest.approx(totals)
    assert growth.share == (share,) * 3


def test_lines_without_counts_leave_the_curve_out():
    growth = Growth("any", ("a", "b"), (0.04, 0.04), ({}, {}))
    assert growth.totals() is None
    assert growth.share == (0.04, 0.04)


def test_of_a_task_that_was_counted_again_the_newest_count_holds(make_classifier_run, tmp_path):
    run = make_classifier_run(tmp_path / "run", "eft", 0, tasks=3)
    counts = {(2, 0): 30, (2, 1): 6, (2, 2): 5, (0, 0): 60, (1, 0): 40, (1, 1): 20}  # lines may stand in any order
    lines = []
    for (after, on), own in counts.items():
        details = {"base_parameters": 100, "adapter_parameters": own}
        cell = (f"task-0{after + 1}", f"task-0{on + 1}", "growth")
        lines.append(Score(run.name, "eft", 0, *cell, own / 100, 0, details))
    append_scores(run / "scores.jsonl", lines)
    ((growth,),) = (study.growth() for study in studies(load_runs([run])))
    assert growth.totals() == pytest.approx([1.60, 1.60, 1.41])
    assert growth.share == (0.30, 0.06, 0.05)
    assert [details["adapter_parameters"] for details in growth.details] == [30, 6, 5]
