"""train_classifier.py from config to report, its run folder, and what it says about bad input."""

import csv
import runpy
import shutil
import sys
import tarfile
from collections import Counter

import pytest
import torch
from PIL import Image

from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.classifier.scorer import ClassifierScorer
from eftgan.classifier.trainer import check_head
from eftgan.commands import main
from eftgan.config import load
from eftgan.data.labelled import LabelledImages
from eftgan.data.shapes import LabelledShapes
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import CIL, TASK, TIL, accuracy_matrix
from eftgan.evaluation.growth import growth
from eftgan.models.classifiers import build_classifier
from eftgan.scores import read_scores
from eftgan.tensors import write_tensors

from ..conftest import ROOT, TINY_CLASSES


def enter(monkeypatch, *words: str) -> int:
    """Run the program in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["train_classifier.py", *words])
    try:
        runpy.run_path(str(ROOT / "train_classifier.py"), run_name="__main__")
    except SystemExit as stop:
        return stop.code or 0
    return 0


CONFIGS = ROOT / "configs" / "classifier"


@pytest.mark.parametrize("config", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: str(p.relative_to(CONFIGS)))
def test_shipped_configs_read_and_build(config):
    experiment = load(ClassifierExperiment, config)
    assert experiment.task_names
    with torch.device("meta"):
        build_classifier(experiment.network.name, 2)


def test_a_run_is_scored_reported_and_read_back(tiny_classes):
    run = train_classifier(tiny_classes(), "test")
    scores = read_scores(run.folder.scores)
    assert {score.metric for score in scores} == {TIL, CIL, TASK, "growth", "seconds"}
    cells = {(after, on) for after in range(3) for on in range(after + 1)}
    for metric in (TIL, CIL, TASK):
        assert set(accuracy_matrix(scores, run.tasks, metric)) == cells
    matrix = accuracy_matrix(scores, run.tasks, TIL)
    assert matrix[0, 0] == matrix[1, 0] == matrix[2, 0]
    carried = {(s.trained_through, s.tested_on): s.details["carried"] for s in scores if s.metric == TIL}
    assert carried == {(i, j): i != j for i, j in carried}
    assert run.folder.report.is_file()
    assert "accuracy-CIL" in run.summary()
    assert ClassifierRun(run.folder.path).classifier(1).training is False


def test_half_precision_trains_other_weights_and_leaves_earlier_tasks_as_they_are(tiny_classes, needs_number_type):
    needs_number_type(torch.bfloat16)
    plain, half = (
        train_classifier(tiny_classes(f"training.mixed_precision={word}", out=word), "test") for word in ("no", "bf16")
    )
    shared = [run.folder.shared.read_bytes() for run in (plain, half)]
    assert shared[0] != shared[1]
    scores = read_scores(half.folder.scores)
    matrix = accuracy_matrix(scores, half.tasks, TIL)
    assert matrix[0, 0] == matrix[1, 0] == matrix[2, 0]
    assert {s.details["carried"] for s in scores if s.metric == TIL and s.trained_through > s.tested_on} == {True}


def test_a_finished_run_takes_further_tasks_and_repeats_nothing(tiny_classes):
    first = train_classifier(tiny_classes("sources.0.take=2"), "test")
    before = first.folder.scores.read_text()
    train_classifier(tiny_classes("sources.0.take=2"), "test")
    assert first.folder.scores.read_text() == before
    more = train_classifier(tiny_classes(), "test")
    assert more.folder.scores.read_text().startswith(before)
    whole = train_classifier(tiny_classes(out="whole"), "test")
    for index, task in enumerate(whole.tasks):
        files = [run.folder.task_file(index, task).read_bytes() for run in (more, whole)]
        assert files[0] == files[1]
    with pytest.raises(UserError, match=r"this run has 3 tasks, the config 2"):
        train_classifier(tiny_classes("sources.0.take=2"), "test")
    with pytest.raises(UserError, match=r"training.batch=10, now it is 5"):
        train_classifier(tiny_classes("training.batch=5"), "test")


def test_changed_weights_are_measured_again(tiny_classes):
    run, other = (train_classifier(tiny_classes(f"seed={seed}", out=str(seed)), "test") for seed in (0, 1))
    for path in [other.folder.shared, *(other.folder.path / "tasks").iterdir()]:
        shutil.copyfile(path, run.folder.path / path.relative_to(other.folder.path))
    before = read_scores(run.folder.scores)
    for _ in range(2):
        for through in range(3):
            ClassifierScorer(ClassifierRun(run.folder.path)).score(through, {"seconds": 1.0, "steps": 1})
        after = read_scores(run.folder.scores)
        assert len(after) == len(before) + 3  # the growth lines hold as well: growth is the same
    accuracies = [score for score in after if score.metric == TIL]
    old, new = ({s.details["weights"] for s in scores if s.metric == TIL} for scores in (before, after))
    assert len(accuracies) == 6
    assert len(new) == 3
    assert not old & new


def test_methods_that_change_all_weights_are_read_back_as_they_were(tiny_classes):
    run = train_classifier(tiny_classes("method={name: finetune}"), "test")
    scores = read_scores(run.folder.scores)
    assert not any(score.details["carried"] for score in scores if score.metric == TIL)
    early, late = (run.classifier(after).state_dict() for after in (0, 2))
    assert not torch.equal(early["stem.0.weight"], late["stem.0.weight"])
    growths = [score for score in scores if score.metric == "growth"]
    assert [score.value for score in growths] == [0.0] * 3


def test_what_tasks_add_is_counted_again_where_later_ones_change_it(tiny_classes):
    run = train_classifier(tiny_classes("method={name: apd, l1: 0.02, l2: 10}"), "test")
    found = {
        (run.tasks.index(score.trained_through), run.tasks.index(score.tested_on)): score
        for score in read_scores(run.folder.scores)
        if score.metric == "growth"
    }
    assert sorted(found) == [(after, on) for after in range(3) for on in range(after + 1)]
    for (after, on), score in found.items():
        counts = growth(run.classifier(after), (3, 16, 16), run.tasks[on])
        assert score.details["adapter_parameters"] == counts.adapter_parameters
        assert score.details["bytes_task"] == run.folder.task_file(on, run.tasks[on]).stat().st_size
    assert found[2, 0].value != found[0, 0].value


def test_a_pretrained_base_is_frozen_from_the_first_task(tiny_classes, tmp_path):
    torch.manual_seed(1)
    weights = build_classifier("resnet8", 7).state_dict()
    write_tensors(tmp_path / "base.safetensors", weights, {})
    words = [
        f"network.weights={tmp_path / 'base.safetensors'}",
        "method={name: eft, base: pretrained}",
        "sources.0.take=1",
    ]
    run = train_classifier(tiny_classes(*words), "test")
    theta = run.classifier(0).state_dict()
    assert torch.equal(theta["stem.0.layer.weight"], weights["stem.0.weight"])
    with pytest.raises(UserError, match=r"needs network.weights"):
        tiny_classes("method={name: eft, base: pretrained}")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sources=[{name: shapes/4, data: 'shapes:6'}]", "6 classes do not divide into 4 tasks"),
        ("sources=[{name: shapes-7/3, data: 'shapes:6'}]", "speaks of 7 classes"),
        ("sources=[]", "name at least one"),
        ("network.name=resnet19", "did you mean"),
        ("training.batch=64", "fewer than one step"),
        ("method.name=mergan", "mergan is for a gan, not for a classifier"),
        ("training.first.epoch=3", "did you mean training.first.epochs"),
        ("method={name: eft, margin: {form: l2, statistics: stored}}", "needs statistics: live"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(monkeypatch, capsys, tmp_path, word, message):
    assert enter(monkeypatch, *(f"out={tmp_path / 'run'}", *TINY_CLASSES, word)) == 2
    assert message in capsys.readouterr().err


def test_a_class_without_test_images_is_named(tiny_classes, monkeypatch):
    def without_first(self, classes):
        found = of_classes(self, classes)
        return found.subset(torch.nonzero(found.targets > 0).flatten())

    of_classes = LabelledImages.of_classes
    monkeypatch.setattr(LabelledImages, "of_classes", without_first)
    with pytest.raises(UserError, match=r"task shapes-1: class '.*' has no training images"):
        train_classifier(tiny_classes(), "test")


def test_a_head_of_the_wrong_size_is_named(tiny_classes):
    run = train_classifier(tiny_classes("sources.0.take=1"), "test")
    run.labelled[0].classes.append("one more")
    with pytest.raises(UserError, match="head has 2 outputs, the data 3 classes"):
        check_head(run.classifier(0), run.labelled[0])


def test_data_that_changed_under_a_run_is_refused(tiny_classes, monkeypatch):
    train_classifier(tiny_classes("sources.0.take=1"), "test")
    others = [7, 3, 9, 1, 2, 0]
    monkeypatch.setattr("eftgan.data.labelled.LabelledShapes", lambda classes, **given: LabelledShapes(others, **given))
    with pytest.raises(UserError, match=r"task shapes-1 has the classes .*, the data has"):
        train_classifier(tiny_classes(), "test")


def test_help_explains_every_key(monkeypatch, capsys):
    assert enter(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    keys = ("sources", "training.first.milestones", "method[eft].margin.delta", "method[si].damping")
    for key in (*keys, "adapters.a: int = 8"):
        assert key in shown


def test_the_program_trains_the_given_config(monkeypatch, capsys, tmp_path):
    assert enter(monkeypatch, f"out={tmp_path / 'run'}", *TINY_CLASSES, "sources.0.take=1") == 0
    assert "1 tasks trained: shapes-1" in capsys.readouterr().out


def test_an_image_is_classified_with_or_without_its_task(tiny_classes, tmp_path, capsys):
    run = train_classifier(tiny_classes(), "test")
    out = run.folder.path
    image = run.labelled[1].test.images[0]
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "picture.png")
    main(["classify", str(out), "--image", str(tmp_path / "picture.png"), "--task", "2"])
    shown = capsys.readouterr().out
    for name in run.labelled[1].classes:
        assert name in shown
    main(["info", str(out)])
    assert f"task 2   {run.tasks[1]}: " in (facts := capsys.readouterr().out)
    assert f"({', '.join(run.labelled[1].classes)})" in facts
    task, ranked = run.classify(image)
    assert task in run.trained
    assert abs(sum(share for _, share in ranked) - 1) < 1e-5
    assert [share for _, share in ranked] == sorted((share for _, share in ranked), reverse=True)
    (tmp_path / "broken.png").write_text("no picture")
    with pytest.raises(SystemExit) as ended:
        main(["classify", str(out), "--image", str(tmp_path / "broken.png")])
    assert ended.value.code == 2
    assert "broken.png" in capsys.readouterr().err
    check_many(run, tmp_path / "photos", capsys)


def check_many(run, photos, capsys):
    """A folder, and an archive of it: a line for each image, how many of each class, the same in a table."""
    (photos / "inner").mkdir(parents=True)
    for number, image in enumerate(run.labelled[0].test.images[:3]):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(photos / "inner" / f"{number}.png")
    (photos / "broken.png").write_text("no picture")
    words = ["classify", str(run.folder.path), "--task", "1", "--out", str(photos / "found.csv"), "--image"]
    main([*words, str(photos)])
    shown = capsys.readouterr().out.splitlines()
    answers = [run.classify(image, "1")[1][0] for image in run.labelled[0].test.images[:3]]
    for number, (name, share) in enumerate(answers):
        assert shown[1 + number] == f"{photos}/inner/{number}.png  {name} {share:.1%}  (task {run.tasks[0]})"
    assert shown[0].startswith(f"{photos}/broken.png  cannot be read as an image (")
    assert shown[5] == "4 images, 1 unreadable"
    counted = {line.split("  (")[0][9:]: int(line[:7]) for line in shown[6:-1]}
    assert counted == Counter(name for name, _ in answers)
    table = list(csv.DictReader((photos / "found.csv").open()))
    assert [row["class"] for row in table] == ["", *(name for name, _ in answers)]
    assert float(table[1]["probability"]) == pytest.approx(answers[0][1], abs=1e-6)
    assert "cannot be read" in table[0]["unreadable"]
    with tarfile.open(photos.with_suffix(".tgz"), "w:gz") as archive:
        archive.add(photos / "inner", "inner")
    main([*words, str(photos.with_suffix(".tgz")), str(photos / "inner/0.png")])
    assert "\n4 images\n" in capsys.readouterr().out
    for place, message in (("none", "no images in it"), ("bad", "none of 1 images could be read")):
        (photos / place).mkdir()
        if place == "bad":
            (photos / "bad/x.png").touch()
        with pytest.raises(SystemExit) as ended:
            main([*words, str(photos / place)])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_a_folder_of_classes_becomes_a_classifier(tiny_classes, tmp_path, capsys):
    for label in ("dark", "light"):
        for number in range(12):
            (tmp_path / "tones" / label).mkdir(parents=True, exist_ok=True)
            colour = (20 if label == "dark" else 200) + number
            Image.new("RGB", (20, 16), (colour,) * 3).save(tmp_path / "tones" / label / f"{number}.png")
    main(["train", "classifier", "--data", str(tmp_path / "tones"), f"out={tmp_path / 'run'}", *TINY_CLASSES[1:]])
    assert "no test/ beside its 2 classes, so 20% of every class are held out" in capsys.readouterr().out
    run = ClassifierRun(tmp_path / "run")
    assert run.classes == {"tones": ["dark", "light"]}
    assert len(run.labelled[0].train) + len(run.labelled[0].test) == 24
    tested = [line.n for line in read_scores(run.folder.scores) if line.metric == TIL]
    assert tested == [len(run.labelled[0].test)]
    (tmp_path / "tones/dark/3.png").unlink()  # and so other images would be held out
    with pytest.raises(UserError, match="tones holds other images than this run was started with"):
        ClassifierRun(tmp_path / "run").labelled[0].train  # noqa: B018
