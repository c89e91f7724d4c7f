"""The notes under the tables of a classifier: what its values must be read with."""

from pathlib import Path

import pytest

from eftgan.scores import Score, append_scores

from .page import report


@pytest.fixture
def classifier(tmp_path):
    """Make a run of two tasks whose accuracy lines have further details; `config`: lines of its config."""

    def make(name: str, method: str = "eft", seed: int = 0, config: str = "", **details: str) -> Path:
        cells = [("one", "one"), ("two", "one"), ("two", "two")]
        metrics = ("accuracy-CIL", "accuracy-TIL", "task-accuracy")
        lines = [Score(name, method, seed, *cell, metric, 0.5, 100, details) for cell in cells for metric in metrics]
        append_scores(tmp_path / name / "scores.jsonl", lines)
        (tmp_path / name / "config.yaml").write_text(f"method: {{name: {method}}}\nseed: {seed}\n{config}")
        return tmp_path / name

    return make


def test_a_row_whose_epochs_were_chosen_on_test_images_is_named_below_every_table_of_scores(classifier, tmp_path):
    honest = classifier("honest", "finetune", selection="val")
    assert "too good" not in report([honest], tmp_path).text
    page = report([honest, classifier("chosen", selection="test")], tmp_path)
    warning = (
        "Caution: the epochs of EFT were chosen on the images that are measured here (training.selection=test), "
        "so these values are too good."
    )
    assert page.text.count(warning) == 5  # two tables at a glance, one of each metric


def test_the_rule_by_which_tasks_were_inferred_is_named_where_it_was_chosen(classifier, tmp_path):
    runs = [classifier(f"run-{seed}", seed=seed, inference="energy") for seed in (0, 1)]
    page = report(runs, tmp_path)
    assert page.text.count("The task of an image is inferred by the rule energy.") == 2  # not where the task is given
    page = report([*runs, classifier("usual", "finetune")], tmp_path)
    assert page.text.count("The task of an image is inferred by different rules: energy (EFT); auto (Finetune).") == 2
    assert "is inferred by" not in report([tmp_path / "usual"], tmp_path).text
