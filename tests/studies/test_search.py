"""Searches for settings: judged on images that are not reported, shared by processes, gone on with after a kill."""

import csv
import json
from pathlib import Path

import pytest
import torch

from eftgan.classifier.experiment import ClassifierExperiment, open_classes
from eftgan.classifier.run import ClassifierRun
from eftgan.commands import main
from eftgan.config import dump, load, read_yaml
from eftgan.files import file_digest
from eftgan.gan.experiment import GanExperiment, open_tasks
from eftgan.gan.kind import GAN, train_gan
from eftgan.gan.run import GanRun
from eftgan.scores import read_scores
from eftgan.studies.comparison import plan_comparison
from eftgan.studies.findings import changes, read_findings

RATES = "method.later_rate=1,4"


@pytest.fixture
def config(tmp_path, tiny) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(dump(tiny("evaluation={features: none, samples: 8}")))
    return path


def tune(config: Path, *words: str, out: str = "tune") -> Path:
    main(["tune", str(config), *words, "--out", str(config.parent / out)])
    return config.parent / out


ON_CHECKS = ("--on", "checks", "--metric", "KID-random", "--trials", "8")


def test_trials_begin_with_one_first_task_and_equal_runs_that_trained_it(config, tmp_path, tiny, capsys):
    out = tune(config, RATES, *ON_CHECKS)
    findings = read_findings(out)
    assert [each.params for each in findings] == [{"method.later_rate": "1"}, {"method.later_rate": "4"}]
    assert capsys.readouterr().out.count("1 of 1: discs") == 1
    for finding, rate in zip(findings, (1, 4), strict=True):
        run = GanRun(out / f"trial-{finding.number:03d}-seed0")
        assert run.experiment.start == str(out / "first-seed0")
        alone = train_gan(tiny(f"method.later_rate={rate}", out=f"alone-{rate}"), "test")
        assert [file_digest(path) for path in run.folder.task_files()] == [
            file_digest(path) for path in alone.folder.task_files()
        ]
        line = [s for s in read_scores(run.folder.scores) if (s.metric, s.tested_on) == ("KID-random", "checks")][-1]
        assert finding.value == line.value
        assert line.details["reference_n"] == 24  # a task that is not reported serves whole


def test_the_best_trial_becomes_a_recipe_for_compare_and_the_table_ranks_all(config, tmp_path):
    out = tune(config, RATES, "training.batch=3", *ON_CHECKS)
    findings = read_findings(out)
    best = min(findings, key=lambda each: each.value)
    rows = list(csv.DictReader((out / "trials.csv").open()))
    assert [float(row["KID-random"]) for row in rows] == sorted(each.value for each in findings)
    assert "| chosen |" in (out / "trials.md").read_text().splitlines()[2]
    recipe = out / "tuned.yaml"
    assert "# Chosen on checks: scores on it are biased." in recipe.read_text()
    comparison = plan_comparison(config, [], ["eft", str(recipe)], [0], tmp_path / "compare")
    usual, tuned = (job.experiment for job in comparison.jobs)
    assert (usual.method.later_rate, usual.training.batch) == (1, 4)
    assert (tuned.method.later_rate, tuned.training.batch) == (json.loads(best.params["method.later_rate"]), 3)
    assert (tuned.title, Path(tuned.out).name, tuned.held_out) == ("EFT, tuned", "tuned-seed0", 0)
    assert usual.tasks == tuned.tasks


def test_a_second_call_trains_nothing_and_more_trials_can_be_asked_for(config, capsys):
    words = (RATES, "method.discriminator=eft,full", "--on", "checks", "--metric", "FD-random")
    out = tune(config, *words, "--trials", "2")
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    tune(config, *words, "--trials", "2")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == files
    tune(config, *words, "--trials", "99")
    assert len({json.dumps(each.params) for each in read_findings(out)}) == len(read_findings(out)) == 4
    with pytest.raises(SystemExit):
        tune(config, RATES, *ON_CHECKS)
    assert "holds a search with another axes" in capsys.readouterr().err


def test_a_trial_that_was_cut_short_is_taken_up(config, monkeypatch):
    train, calls = GAN.train, []

    def cut(experiment, command, **options):
        calls.append(Path(experiment.out).name)
        if len(calls) == 3:  # the first task, a trial, and this one
            raise KeyboardInterrupt
        return train(experiment, command, **options)

    monkeypatch.setattr(GAN, "train", cut)
    with pytest.raises(SystemExit):
        tune(config, RATES, *ON_CHECKS)
    out = tune(config, RATES, *ON_CHECKS)
    assert calls == ["first-seed0", "trial-000-seed0", "trial-001-seed0", "trial-001-seed0"]
    assert [each.number for each in read_findings(out)] == [0, 1]


def test_a_trial_whose_loss_is_not_finite_has_failed_and_the_others_go_on(config):
    out = tune(config, "training.learning_rate=1e-3,1e30", *ON_CHECKS)
    good, bad = read_findings(out)
    assert good.value is not None
    assert "infinite or NaN" in bad.failed
    assert load(GanExperiment, out / "tuned.yaml").training.learning_rate == 1e-3
    assert not (out / "first-seed0").exists()  # another rate makes another first task


def test_a_generator_is_judged_on_images_that_it_did_not_train_on(config, tmp_path):
    out = tune(config, RATES, "--metric", "FD-random", "--trials", "1", "--held-out", "0.25")
    run = GanRun(out / "trial-000-seed0")
    assert run.experiment.held_out == 0.25
    for index, task in enumerate(open_tasks(run.experiment, 1)):
        trained, measured = (
            {collection[i].numpy().tobytes() for i in range(len(collection))}
            for collection in (task.images, run.real_images(index))
        )
        assert (len(trained), len(measured)) == (18, 6)
        assert not trained & measured
    lines = [s for s in read_scores(run.folder.scores) if s.metric == "FD-random" and s.trained_through in run.tasks]
    assert {(line.tested_on, line.details["reference_n"]) for line in lines} == {("discs", 6), ("checks", 6)}


def test_a_classifier_is_judged_on_a_share_of_each_class_and_never_on_test_images(tmp_path, tiny_classes):
    (config := tmp_path / "classes.yaml").write_text(dump(tiny_classes()))
    words = ("method=lwf", "method.strength=0.5,2", "--metric", "accuracy-TIL", "--seeds", "0,1")
    out = tune(config, *words)
    run = ClassifierRun(out / "trial-000-seed1")
    whole = open_classes(load(ClassifierExperiment, config, ["seed=1"]))
    for task, all_images in zip(run.labelled, whole, strict=True):
        parts = [{image.numpy().tobytes() for image, _ in each} for each in (task.train, task.test)]
        everything = {image.numpy().tobytes() for image, _ in all_images.train}
        assert parts[0] | parts[1] == everything
        assert not parts[0] & parts[1]
        assert torch.bincount(task.test.targets).tolist() == [2] * len(task.classes)
        assert not {image.numpy().tobytes() for image, _ in all_images.test} & (parts[0] | parts[1])
    finding = read_findings(out)[0]
    assert set(finding.scores) == {"0", "1"}
    lines = {s.tested_on: s for s in read_scores(run.folder.scores) if s.trained_through == run.tasks[-1]
             and s.metric == "accuracy-TIL"}  # fmt: skip
    assert finding.scores["1"] == {task: line.value for task, line in lines.items()}
    assert "held out of training" in (out / "trial-000-seed1" / "report.md").read_text()
    assert read_yaml(out / "tuned.yaml")["method"]["name"] == "lwf"


def test_eft_of_a_classifier_shares_its_own_first_task(tmp_path, tiny_classes, capsys):
    (config := tmp_path / "classes.yaml").write_text(dump(tiny_classes("sources.0.take=2")))
    out = tune(config, RATES, "--metric", "accuracy-CIL")
    assert len(read_findings(out)) == 2
    assert capsys.readouterr().out.count("1 of 1: shapes-1") == 1
    assert ClassifierRun(out / "first-seed0").experiment.method.name == "eft"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training.steps=4"], "nothing to search over"),
        ([RATES, "--on", "birds"], "no task 'birds'; there are: discs, checks"),
        ([RATES, "--metric", "accuracy"], "a gan is judged by one of KID, FID"),
        ([RATES, "--held-out", "0"], "would be no test"),
        ([RATES, "--held-out", "1.5", "--on", "checks"], "a share between 0 and 1"),
        (["method.later_rate=1,-2"], "later_rate"),
        (["method.laterrate=1,2"], "did you mean method.later_rate"),
        ([RATES, "tasks.1.data=nowhere.lmdb"], "nowhere.lmdb: it has no data.mdb"),
        ([RATES, "--trials", "0"], "at least one"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(config, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        tune(config, *words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (config.parent / "tune").exists()


def test_a_recipe_holds_what_differs_and_a_mapping_of_another_name_whole():
    before = {"method": {"name": "eft", "init": "previous"}, "tasks": [1, 2], "training": {"batch": 4, "steps": 6}}
    same = before | {"training": {"batch": 4, "steps": 9}}
    assert changes(before, same) == {"training": {"steps": 9}}
    other = before | {"method": {"name": "ewc", "strength": 3}}
    assert changes(before, other) == {"method": {"name": "ewc", "strength": 3}}
