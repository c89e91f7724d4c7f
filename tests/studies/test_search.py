"""Searches for settings: judged on images that are not reported, shared by processes, gone on with after a kill."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch

from eftgan.classifier.experiment import ClassifierExperiment, open_classes
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.commands import main
from eftgan.config import apply_override, build, dump, load
from eftgan.evaluation.metrics import METRICS
from eftgan.files import file_digest
from eftgan.gan.experiment import GanExperiment, open_tasks
from eftgan.gan.kind import GAN, train_gan
from eftgan.gan.run import GanRun
from eftgan.scores import read_scores
from eftgan.studies.comparison import plan_comparison
from eftgan.studies.findings import Finding, best_of, changes, read_findings
from eftgan.studies.search import begins_alike

from ..conftest import TINY, TINY_CLASSES

RATES = "method.later_rate=1,4"
ON_CHECKS = ("--on", "checks", "--metric", "KID-random", "--trials", "8")


def write_config(folder: Path, words: list[str], kind: type) -> Path:
    data: dict = {}
    for word in words:
        apply_override(data, word)
    path = folder / "tiny.yaml"
    path.write_text(dump(build(kind, data)))
    return path


@pytest.fixture
def config(tmp_path) -> Path:
    return write_config(tmp_path, [*TINY, "evaluation={features: none, samples: 8}"], GanExperiment)


def tune(config: Path, *words: str) -> Path:
    main(["tune", str(config), *words, "--out", str(config.parent / "tune")])
    return config.parent / "tune"


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> Path:
    """A folder with tiny.yaml, and a search of its second task's learning rate in tune/."""
    folder = tmp_path_factory.mktemp("searched")
    config = write_config(folder, [*TINY, "evaluation={features: none, samples: 8}"], GanExperiment)
    tune(config, RATES, "training.batch=3", *ON_CHECKS)
    return folder


@pytest.mark.parametrize(("base", "alike"), [("method.base=train", True), ("method.base=pretrained", False)])
def test_trials_share_a_first_task_unless_their_rates_hold_in_it(tiny, base, alike):
    base_weights = "base_weights=netG.pth" if "pretrained" in base else "base_weights=null"
    words = ["method={name: eft, discriminator: full}", base, base_weights]
    first = tiny(*words, "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]")
    assert begins_alike(tiny(*words), first)
    assert begins_alike(tiny(*words, "method.later_rate=4"), first) == alike
    assert begins_alike(tiny(*words, "method.discriminator_rate=2"), first) == alike


def test_trials_begin_with_one_first_task_and_equal_runs_that_trained_it(searched, tiny):
    findings = read_findings(searched / "tune")
    assert [each.params for each in findings] == [{"method.later_rate": "1"}, {"method.later_rate": "4"}]
    runs = [GanRun(searched / "tune" / f"trial-{each.number:03d}-seed0") for each in findings]
    assert {run.experiment.start for run in runs} == {str(searched / "tune" / "first-finetune-seed0")}
    alone = train_gan(tiny("method.later_rate=4", "training.batch=3"), "test")
    assert [file_digest(path) for path in runs[1].folder.task_files()] == [
        file_digest(path) for path in alone.folder.task_files()
    ]
    for finding, run in zip(findings, runs, strict=True):
        lines = {(s.metric, s.trained_through, s.tested_on): s for s in read_scores(run.folder.scores)}
        assert finding.value == lines["KID-random", "checks", "checks"].value
        assert lines["KID-random", "checks", "checks"].details["reference_n"] == 24  # a task not reported serves whole


def test_the_best_trial_becomes_a_recipe_for_compare_and_the_table_ranks_all(searched, tmp_path):
    findings = read_findings(searched / "tune")
    best = min(findings, key=lambda each: each.value)
    rows = list(csv.DictReader((searched / "tune" / "trials.csv").open()))
    assert [float(row["KID-random"]) for row in rows] == sorted(each.value for each in findings)
    assert "| chosen |" in (searched / "tune" / "trials.md").read_text().splitlines()[2]
    recipe = searched / "tune" / "tuned.yaml"
    assert "# Chosen on checks: scores on it are biased." in recipe.read_text()
    comparison = plan_comparison(searched / "tiny.yaml", [], ["eft", str(recipe)], [0], tmp_path / "compare")
    usual, tuned = (job.experiment for job in comparison.jobs)
    assert (usual.method.later_rate, usual.training.batch) == (1, 4)
    assert (tuned.method.later_rate, tuned.training.batch) == (json.loads(best.params["method.later_rate"]), 3)
    assert (tuned.title, Path(tuned.out).name, tuned.held_out) == ("EFT, tuned", "tuned-seed0", 0)
    assert usual.tasks == tuned.tasks


def test_a_second_call_trains_nothing_and_another_question_is_refused(searched, capsys):
    files = {path: path.stat().st_mtime_ns for path in searched.rglob("*.safetensors")}
    tune(searched / "tiny.yaml", RATES, "training.batch=3", *ON_CHECKS)
    assert {path: path.stat().st_mtime_ns for path in searched.rglob("*.safetensors")} == files
    with pytest.raises(SystemExit):
        tune(searched / "tiny.yaml", "method.later_rate=1,8", "training.batch=3", *ON_CHECKS)
    assert "holds a search with another axes" in capsys.readouterr().err


def test_statistics_of_real_images_are_kept_where_the_cache_is(searched, tmp_path, monkeypatch):
    """A finished search is judged again: what it measured is gone, and so are its own statistics."""
    copy = Path(shutil.copytree(searched, tmp_path / "copy"))
    shutil.rmtree(copy / "tune/.statistics")
    for path in [*copy.glob("tune/trial-0*.json"), *copy.glob("tune/trials.journal*")]:
        path.unlink()
    for scores in copy.glob("tune/trial-*/scores.jsonl"):
        scores.unlink()
    monkeypatch.setattr(GAN, "is_finished", lambda experiment: True)
    tune(copy / "tiny.yaml", RATES, "training.batch=3", *ON_CHECKS, "--cache", str(tmp_path / "cache"))
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".safetensors"]
    assert not (copy / "tune/.statistics").exists()
    assert [each.scores for each in read_findings(copy / "tune")] == [
        each.scores for each in read_findings(searched / "tune")
    ]


def test_a_classifier_has_no_statistics_of_real_images(tmp_path, capsys):
    config = write_config(tmp_path, TINY_CLASSES, ClassifierExperiment)
    with pytest.raises(SystemExit) as ended:
        tune(config, "method.later_rate=1,2", "--cache", "cache")
    assert ended.value.code == 2
    assert "--cache cache: keeps statistics of a GAN's images" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trial_that_was_cut_short_is_taken_up_and_more_can_be_asked_for(config, monkeypatch):
    train, calls = GAN.train, []

    def cut(experiment, command, **options):
        calls.append(Path(experiment.out).name)
        if len(calls) == 2:  # after the first task
            raise KeyboardInterrupt
        return train(experiment, command, **options)

    monkeypatch.setattr(GAN, "train", cut)
    once = (RATES, *ON_CHECKS[:-1], "1")
    with pytest.raises(SystemExit):
        tune(config, *once)
    assert [each.number for each in read_findings(tune(config, *once))] == [0]
    assert [each.number for each in read_findings(tune(config, RATES, *ON_CHECKS))] == [0, 1]
    assert calls == ["first-finetune-seed0", "trial-000-seed0", "trial-000-seed0", "trial-001-seed0"]


def test_a_trial_whose_loss_is_not_finite_has_failed_and_the_others_go_on(config):
    out = tune(config, "training.learning_rate=1e-3,1e30", *ON_CHECKS)
    good, bad = read_findings(out)
    assert good.value is not None
    assert "infinite or NaN" in bad.failed
    assert load(GanExperiment, out / "tuned.yaml").training.learning_rate == 1e-3
    assert not list(out.glob("first-*"))  # another rate makes another first task


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


def test_a_classifier_is_judged_on_a_share_of_each_class_and_never_on_test_images(tmp_path, capsys):
    config = write_config(tmp_path, [*TINY_CLASSES, "sources.0.take=2"], ClassifierExperiment)
    out = tune(config, RATES, "--metric", "accuracy-TIL", "--seeds", "1")
    run = ClassifierRun(out / "trial-000-seed1")
    whole = open_classes(load(ClassifierExperiment, config, ["seed=1"]))
    for task, all_images in zip(run.labelled, whole, strict=True):
        parts = [{image.numpy().tobytes() for image, _ in each} for each in (task.train, task.test)]
        assert parts[0] | parts[1] == {image.numpy().tobytes() for image, _ in all_images.train}
        assert not parts[0] & parts[1]
        assert torch.bincount(task.test.targets).tolist() == [2] * len(task.classes)
        assert not {image.numpy().tobytes() for image, _ in all_images.test} & (parts[0] | parts[1])
    lines = {(s.trained_through, s.tested_on, s.metric): s.value for s in read_scores(run.folder.scores)}
    last = run.tasks[-1]
    expected = {task: lines[last, task, "accuracy-TIL"] for task in run.tasks}
    assert read_findings(out)[0].scores == {"1": expected}
    assert "held out of training" in (out / "trial-000-seed1" / "report.md").read_text()
    assert capsys.readouterr().out.count("task 1 of 1: shapes-1") == 1  # which the trials of EFT share
    assert ClassifierRun(out / "first-seed1").experiment.method.name == "eft"


def test_a_method_that_writes_its_finished_tasks_anew_begins_with_one_of_fine_tuning(tmp_path, tiny_classes):
    sdc = ["method={name: ewc-sdc, samples: 8}", "sources.0.take=2"]
    config = write_config(tmp_path, [*TINY_CLASSES, *sdc], ClassifierExperiment)
    out = tune(config, RATES, "--metric", "accuracy-CIL", "--trials", "1")
    (finding,) = read_findings(out)
    trial, first = ClassifierRun(out / "trial-000-seed0"), ClassifierRun(out / "first-finetune-seed0")
    assert (trial.experiment.start, first.experiment.method.name) == (str(first.folder.path), "finetune")
    rate = f"method.later_rate={finding.params['method.later_rate']}"
    alone = train_classifier(tiny_classes(*sdc, rate, "held_out=0.2", out="alone"), "test")
    ours, its = ([file_digest(path) for path in run.folder.task_files()] for run in (trial, alone))
    assert len(ours) == 2
    assert ours == its


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
        ([RATES, "tasks.1.data=nowhere.lmdb"], "no LMDB at nowhere.lmdb"),
        ([RATES, "--trials", "0"], "at least one"),
        ([RATES, "training.epochs=3"], "training.epochs=3 has no effect where the config sets training.steps"),
        (["training.epochs=3,4"], "training.epochs=3 has no effect where the config sets training.steps"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(config, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        tune(config, *words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not (config.parent / "tune").exists()


def test_a_trial_is_judged_by_the_mean_over_tasks_and_seeds_and_ties_go_to_the_earlier():
    one = Finding(0, {}, {"0": {"a": 1.0, "b": 3.0}, "1": {"a": 5.0, "b": 7.0}})
    assert (one.value, one.spread) == (4.0, 8**0.5)
    same, better, failed = Finding(1, {}, {"0": {"a": 4.0}}), Finding(2, {}, {"0": {"a": 9.0}}), Finding(3, {}, {}, "x")
    assert best_of([failed, same, one, better], METRICS["KID"]) is one
    assert best_of([failed, same, one, better], METRICS["accuracy-TIL"]) is better
    assert best_of([failed], METRICS["KID"]) is None


def test_a_recipe_holds_what_differs_and_a_mapping_of_another_name_whole():
    before = {"method": {"name": "eft", "init": "previous"}, "tasks": [1, 2], "training": {"batch": 4, "steps": 6}}
    same = before | {"training": {"batch": 4, "steps": 9}}
    assert changes(before, same) == {"training": {"steps": 9}}
    other = before | {"method": {"name": "ewc", "strength": 3}}
    assert changes(before, other) == {"method": {"name": "ewc", "strength": 3}}
