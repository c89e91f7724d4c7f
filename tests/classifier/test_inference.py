"""What tasks keep for rules of inference, and rules compared on a run that is trained."""

import csv
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from eftgan.adapters.taskfile import read_task_file
from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.classifier.kept import KeptStatistics
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.classifier.scorer import ClassifierScorer
from eftgan.commands import main
from eftgan.config import apply_override, build
from eftgan.data.labelled import LabelledImages
from eftgan.data.splits import LabelledTask
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import CIL, accuracy_matrix, average_over_seen
from eftgan.evaluation.rules import RULES, rule_named
from eftgan.evaluation.task_inference import logits_by_task
from eftgan.scores import read_scores

from ..conftest import TINY_CLASSES

RULE = "entropy+relative+common+lda+texture"
LOGITS = ["entropy", "max-softmax", "max-logit", "energy", "margin"]  # rules that look at nothing else


def experiment(out, *words: str) -> ClassifierExperiment:
    data: dict = {"out": str(out)}
    for word in (*TINY_CLASSES, "sources.0.take=2", *words):
        apply_override(data, word)
    return build(ClassifierExperiment, data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inference")


@pytest.fixture(scope="module")
def plain(folder) -> ClassifierRun:
    return train_classifier(experiment(folder / "plain"), "test")


@pytest.fixture(scope="module")
def keeping(folder) -> ClassifierRun:
    return train_classifier(experiment(folder / "keeping", f"inference={RULE}"), "test")


@pytest.fixture(scope="module")
def changing(folder) -> ClassifierRun:
    return train_classifier(experiment(folder / "changing", "method={name: finetune}"), "test")


def photo(run: ClassifierRun, folder: Path, task: int = 0) -> Path:
    """A test image of a task, as a file."""
    image = run.labelled[task].test.fetch(torch.tensor([0]))[0][0]
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / "photo.png")
    return folder / "photo.png"


def test_a_task_file_holds_what_the_rule_needs_beside_the_same_weights(plain, keeping):
    for index, task in enumerate(keeping.tasks):
        files = [read_task_file(run.folder.task_file(index, task)).states for run in (plain, keeping)]
        assert set(files[0]) == {"classifier"}
        assert set(files[1]["inference"]) == set(rule_named(RULE).kept_by(index))
        assert all(torch.equal(files[0]["classifier"][key], own) for key, own in files[1]["classifier"].items())
    (line,) = (s for s in read_scores(keeping.folder.scores) if (s.metric, s.tested_on) == ("growth", task))
    added = [files[1]["inference"][key].numel() for key in rule_named(RULE).added_by(index)]
    assert line.details["kept_parameters"] == sum(added) > 0
    assert "lda/covariance" not in rule_named(RULE).added_by(index)  # which comes in the place of the first task's


def test_what_a_run_without_the_rule_is_fitted_afterwards_is_the_same_bits(plain, keeping):
    rule = rule_named(RULE)
    after, before = (KeptStatistics(run).of(rule, run.tasks) for run in (plain, keeping))
    assert not (keeping.folder.path / "inference").exists()
    for own, theirs in zip(after, before, strict=True):
        assert all(torch.equal(own[key], theirs[key]) for key in rule.kept_by(0))
    written = plain.folder.inference_file(0, plain.tasks[0])
    stamp = written.stat().st_mtime_ns
    KeptStatistics(plain).of(rule, plain.tasks)  # read this time
    assert written.stat().st_mtime_ns == stamp


def test_fitting_sees_the_training_images_of_the_task_and_no_others(folder, monkeypatch):
    run = train_classifier(experiment(folder / "watched"), "test")
    allowed: list[LabelledImages] = []
    fetch = LabelledImages.fetch

    def watched(self, indices):
        assert any(self is images for images in allowed), "images were looked at that are not the task's own"
        return fetch(self, indices)

    def no_test(self):
        raise AssertionError("test images were asked for")

    model = run.classifier(1)
    again = ClassifierRun(run.folder.path)
    tasks = again.labelled
    monkeypatch.setattr(LabelledTask, "test", property(no_test))
    monkeypatch.setattr(LabelledImages, "fetch", watched)
    for task in tasks:
        allowed[:] = [task.train]
        assert again.kept.of(rule_named(f"{RULE}+calibrated"), [task.name], model)
    with pytest.raises(AssertionError, match="not the task's own"):  # the watch itself works
        tasks[0].train.fetch(torch.arange(2))


def test_evaluate_compares_rules_and_leaves_the_scores_of_the_run_alone(plain, keeping, tmp_path, capsys):
    before = plain.folder.scores.read_bytes()
    main(["evaluate", str(plain.folder.path), "--inference", f"auto,{RULE}", "--out", str(tmp_path / "rules.csv")])
    assert plain.folder.scores.read_bytes() == before
    shown = capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "rules.csv").open()))
    assert [(row["rule"], row["tested on"]) for row in rows] == [(r, t) for r in ("auto", RULE) for t in plain.tasks]
    for run, rule in ((plain, "auto"), (keeping, RULE)):
        found = accuracy_matrix(read_scores(run.folder.scores), run.tasks, CIL)
        own = [float(row[CIL]) for row in rows if row["rule"] == rule]
        assert own == pytest.approx([found[1, 0], found[1, 1]], abs=1e-6)
        assert f"\n{rule} " in shown
    assert int(rows[-1]["bytes kept per task"]) > 0 == int(rows[0]["bytes kept per task"])
    assert average_over_seen(found, 1) > 0


def test_a_run_goes_by_another_rule_without_training_again(folder, plain):
    run = train_classifier(experiment(folder / "plain", "inference=energy"), "test")
    lines = [s for s in read_scores(run.folder.scores) if s.metric == CIL]
    assert {s.details.get("inference") for s in lines} == {"energy"}
    assert len(lines) == 3
    back = train_classifier(experiment(folder / "plain"), "test")
    lines = [s for s in read_scores(back.folder.scores) if s.metric == CIL]
    assert {s.details.get("inference") for s in lines} == {None}


def test_a_run_goes_back_to_a_rule_whose_seconds_alone_are_still_known(folder, keeping):
    shutil.copytree(keeping.folder.path, folder / "back", ignore=shutil.ignore_patterns("state"))
    for rule in ("energy", RULE):
        run = train_classifier(experiment(folder / "back", f"inference={rule}"), "test")
        lines = [s for s in read_scores(run.folder.scores) if s.metric == CIL]
        assert {s.details["inference"] for s in lines} == {rule}
    seconds = [s for s in read_scores(run.folder.scores) if s.metric == "seconds"]
    assert len(seconds) == 2  # without a state nobody knows again what training took


def kept_numbers(run: ClassifierRun) -> list[int]:
    """What the newest growth lines say that each task keeps."""
    lines = {s.tested_on: s.details["kept_parameters"] for s in read_scores(run.folder.scores) if s.metric == "growth"}
    return [lines[task] for task in run.tasks]


def test_growth_counts_what_the_rule_in_use_keeps_whatever_the_tasks_files_hold(folder, plain, keeping):
    counts = [sum(t.numel() for t in keeping.kept.added(rule_named(RULE), task).values()) for task in keeping.tasks]
    assert kept_numbers(keeping) == counts
    assert kept_numbers(plain) == [0, 0]
    other = train_classifier(experiment(folder / "plain", f"inference={RULE}"), "test")
    assert kept_numbers(other) == counts
    train_classifier(experiment(folder / "plain"), "test")
    shutil.copytree(keeping.folder.path, folder / "other")
    assert kept_numbers(train_classifier(experiment(folder / "other"), "test")) == [0, 0]


def test_an_image_is_classified_by_the_rule_of_the_run(keeping):
    image = keeping.labelled[1].test.fetch(torch.tensor([0]))[0][0]
    model = keeping.classifier(1)
    answers, found = keeping.answers(image, model, keeping.tasks)
    assert sum(answer.certainty for answer in answers) == pytest.approx(1.0)  # shares of the tasks' scores
    assert found == max(range(2), key=lambda place: answers[place].certainty)


@pytest.mark.parametrize("rule", ["joint", RULE])
def test_with_the_task_given_its_logits_decide_and_the_other_tasks_files_are_not_needed(plain, rule, tmp_path):
    images = plain.labelled[1].test.fetch(torch.arange(len(plain.labelled[1].test)))[0]
    (logits,) = logits_by_task(plain.classifier(1), plain.tasks[1:], lambda: [plain.experiment.pixels(images)])
    names = [plain.classes[plain.tasks[1]][best] for best in logits.argmax(1).tolist()]
    copy = tmp_path / "run"
    shutil.copytree(plain.folder.path, copy, ignore=shutil.ignore_patterns("inference", "logits", "state"))
    alone = ClassifierRun(copy)
    alone.folder.task_file(0, plain.tasks[0]).unlink()
    alone.inference = rule
    ask = alone.asker("2")
    assert [ask(image)[1][0][0] for image in images] == names


def test_rules_that_keep_something_are_refused_where_tasks_go_on_changing(tmp_path, changing):
    with pytest.raises(UserError, match="inference: density has every task keep something"):
        experiment(tmp_path, "inference=density", "method={name: finetune}")
    with pytest.raises(UserError, match="goes on changing the weights"):
        changing.kept.of(rule_named("density"), changing.tasks)


def test_rules_that_look_at_features_are_refused_where_heads_read_more(tiny_classes, tmp_path, capsys):
    words = ("method={name: pnn}",)
    with pytest.raises(UserError, match="looks at what a task's output layer reads"):
        train_classifier(tiny_classes(*words, "inference=density", out="refused"), "test")
    run = train_classifier(tiny_classes(*words, "inference=calibrated", out="taken"), "test")
    why = "looks at what a task's output layer reads"
    with pytest.raises(UserError, match=why):
        ClassifierScorer(run).shares(run.classifier(len(run.trained) - 1, run.trained), 1, 0, "density")
    image = photo(run, tmp_path)
    capsys.readouterr()
    for words in (
        ["evaluate", str(run.folder.path), "--inference", "calibrated,density"],
        ["classify", str(run.folder.path), "--inference", "density", "--image", str(image)],
        ["classify", str(run.folder.path), "--inference", "entropy+common", "--image", str(image), str(image)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert why in said
        assert said.count("\n") == 1
    main(["evaluate", str(run.folder.path), "--inference", "all"])
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"left out: density, relative, common, joint, lda, lda-joint, texture, texture-joint: each {why}"
    )
    assert [row.split()[0] for row in rows[1:]] == ["auto", *LOGITS, "calibrated"]


def test_all_rules_are_those_that_a_run_allows(changing, plain, capsys):
    main(["evaluate", str(changing.folder.path), "--inference", "all"])
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "left out: calibrated, density, relative, common, joint, lda, lda-joint, texture, texture-joint: each has "
        "every task keep"
    )
    assert "finetune goes on changing the weights" in first
    assert [row.split()[0] for row in rows[1:]] == ["auto", *LOGITS]
    main(["evaluate", str(plain.folder.path), "--inference", "all"])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("after ")
    assert [row.split()[0] for row in rows[1:]] == ["auto", *RULES]
