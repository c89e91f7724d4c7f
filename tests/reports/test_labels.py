"""Which runs share a row of the tables, and what the rows are called."""

import json

import pytest

from eftgan.scores import Score, append_scores

from .page import report

WIDE, NARROW = "adapters: {a: 32}", "adapters: {a: 8}"


@pytest.fixture
def rows(make_run, tmp_path):
    """Report on runs given as (folder, seed, further config): the rows and how many seeds each has."""

    def of(*runs):
        folders = [make_run(tmp_path / path, seed=seed, config=config) for path, seed, config in runs]
        return {row[0]: int(row[-1]) for row in report(folders, tmp_path).table("Results at a glance")[1:]}

    return of


def test_seeds_of_one_experiment_are_one_row(rows):
    assert rows(("a/eft-seed0", 0, WIDE), ("b/eft-seed1", 1, WIDE), ("b/c", 2, WIDE)) == {"EFT": 3}


def test_other_configs_are_other_rows_whatever_their_seeds(rows):
    assert rows(("a/eft-seed0", 0, WIDE), ("b/eft-seed0", 0, NARROW)) == {"EFT (a)": 1, "EFT (b)": 1}
    assert rows(("c/eft-seed0", 0, WIDE), ("d/eft-seed1", 1, NARROW)) == {"EFT (c)": 1, "EFT (d)": 1}


def test_seeds_stay_together_beside_another_experiment(rows):
    runs = [(f"{folder}/eft-seed{seed}", seed, config) for folder, config in (("a", WIDE), ("b", NARROW))
            for seed in (0, 1)]  # fmt: skip
    assert rows(*runs) == {"EFT (a)": 2, "EFT (b)": 2}


def test_an_experiment_that_was_run_twice_is_two_rows(rows):
    runs = [(f"{folder}/eft-seed{seed}", seed, WIDE) for folder in "ab" for seed in (0, 1)]
    assert rows(*runs) == {"EFT (a)": 2, "EFT (b)": 2}
    assert rows(("wide", 0, ""), ("narrow", 0, "")) == {"EFT (wide)": 1, "EFT (narrow)": 1}
    assert rows(*[(f"{name}-seed{seed}", seed, "") for name in ("x", "y") for seed in (0, 1)]) == {
        "EFT (x)": 2,
        "EFT (y)": 2,
    }


def test_names_are_as_long_as_it_takes(rows):
    runs = (("a/eft", 0, WIDE), ("a/other", 0, WIDE), ("b/eft", 0, WIDE))
    assert list(rows(*runs)) == ["EFT (a/eft)", "EFT (a/other)", "EFT (b/eft)"]


def test_a_row_named_by_one_of_its_folders_says_that_there_are_more(rows):
    runs = (("eft-seed0", 0, WIDE), ("eft-seed1", 1, NARROW), ("eft-seed2", 2, WIDE))
    assert rows(*runs) == {"EFT (eft-seed0 …)": 2, "EFT (eft-seed1)": 1}


@pytest.mark.parametrize("free", ["out: {}", "title: {}", "evaluation: {{samples: {}}}", "training: {{workers: {}}}"])
def test_what_changes_no_result_makes_no_row(rows, free):
    assert rows(("a", 0, free.format(1)), ("b", 1, free.format(2))) == {"EFT": 2}


def test_a_folder_given_twice_counts_once(make_run, tmp_path):
    run = make_run(tmp_path / "run")
    page = report([run, run.parent / "." / "run"], tmp_path)
    assert [(row[0], row[-1]) for row in page.table("Results at a glance")[1:]] == [("EFT", "1")]


def test_bare_score_lines_share_a_row_until_a_seed_repeats(tmp_path):
    for name, seed in (("a", 0), ("b", 1), ("c", 1)):
        append_scores(tmp_path / name / "scores.jsonl", [Score("r", "eft", seed, "cats", "cats", "FID", 30.0, 100)])

    def found(*names):
        table = report([tmp_path / name for name in names], tmp_path).table("Results at a glance")
        return [row[0] for row in table[1:]]

    assert found("a", "b") == ["EFT"]
    assert found("a", "b", "c") == ["EFT (a)", "EFT (b)", "EFT (c)"]


def facts(run, **further):
    """Write further facts into run.json, as a later version of training does."""
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | further))
    return run


def rows_of(page):
    return [row[0] for row in page.table("Results at a glance")[1:]]


def test_a_method_is_called_what_its_run_calls_it(make_run, tmp_path):
    run = facts(make_run(tmp_path / "run"), label="Efficient transformations")
    assert rows_of(report([run], tmp_path)) == ["Efficient transformations"]
    assert rows_of(report([facts(run, title="mine")], tmp_path)) == ["mine"]
    assert rows_of(report([facts(run, title=5, label=["x"])], tmp_path)) == ["EFT"]


def test_the_label_is_not_given_to_score_lines_of_another_method(make_run, tmp_path):
    run = facts(make_run(tmp_path / "run"), label="Mine")
    append_scores(run / "scores.jsonl", [Score("r", "ewc", 0, "cats", "cats", "FID", 30.0, 100)])
    assert rows_of(report([run], tmp_path)) == ["Mine", "EWC"]


def test_what_was_trained_is_called_what_its_run_calls_it(make_run, tmp_path):
    old, new = (make_run(tmp_path / name) for name in ("old", "new"))
    text = report([facts(new, kind="diffusion", noun="image generator")], tmp_path).text
    assert "One image generator, 4 tasks in a row" in text
    assert "An image generator learned 4 tasks" in text
    assert "A text classifier learned" in report([facts(new, noun="text classifier")], tmp_path).text
    text = report([old], tmp_path).text
    assert "One image generator, 4 tasks in a row" in text
    assert "A generative adversarial network learned" in text


def test_runs_under_different_rules_of_inference_are_different_rows(rows):
    assert rows(("a", 0, "inference: auto"), ("b", 1, "inference: energy")) == {"EFT (a)": 1, "EFT (b)": 1}
    assert rows(("c", 0, "inference: energy"), ("d", 1, "inference: energy")) == {"EFT": 2}


def test_the_usual_rule_of_inference_is_that_of_runs_that_had_no_choice(rows):
    assert rows(("a", 0, "inference: auto"), ("b", 1, "")) == {"EFT": 2}
