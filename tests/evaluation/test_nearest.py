"""init: nearest, from the measured distances to the task that they choose."""

import json

import pytest
import torch

from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.classifier.kind import train_classifier
from eftgan.config import apply_override, build
from eftgan.data.shapes import ShapeImages
from eftgan.errors import UserError
from eftgan.evaluation.nearest import nearest_earlier
from eftgan.files import file_digest
from eftgan.gan.kind import train_gan

AGAIN = "tasks+=[{name: stripes, data: 'shapes:stripes', limit: 24}, {name: again, data: 'shapes:discs', limit: 20}]"
STEPS = "training.steps=2"
NEAREST = "method={name: eft, init: nearest}"


def test_the_nearest_is_the_one_of_the_same_kind():
    images = {name: ShapeImages(kind, 40, 38, seed) for seed, (name, kind) in enumerate(
        [("discs", "discs"), ("stripes", "stripes"), ("balls", "discs"), ("checks", "checks"), ("bands", "stripes")]
    )}  # fmt: skip
    found = nearest_earlier(images, ["discs", "balls", "bands"], 32)
    assert list(found) == ["balls", "bands"]  # nothing is before the first
    assert (found["balls"].task, found["bands"].task) == ("discs", "stripes")
    assert list(found["bands"].distances) == ["discs", "stripes", "balls", "checks"]
    assert str(found["balls"]).startswith("discs, the nearest by FD-random (discs ")
    assert nearest_earlier(images, [], 32) == {}
    torch.manual_seed(5)
    assert nearest_earlier(images, ["balls"], 32) == {"balls": found["balls"]}  # no random number decides


def test_a_gan_that_starts_from_the_nearest_equals_one_that_is_told_the_name(tiny, capsys):
    found = train_gan(tiny(STEPS, AGAIN, NEAREST, out="found"), "test")
    assert "task again starts from discs" in capsys.readouterr().out
    told = train_gan(tiny(STEPS, AGAIN, "tasks.3.init=discs", "tasks.2.init=checks", out="told"), "test")
    previous = train_gan(tiny(STEPS, AGAIN, out="previous"), "test")
    facts = json.loads(found.folder.facts.read_text())
    assert {task: each["task"] for task, each in facts["nearest"].items()} == {
        "checks": "discs", "stripes": "checks", "again": "discs"
    }  # fmt: skip
    assert set(facts["nearest"]["again"]["distances"]) == {"discs", "checks", "stripes"}
    assert "nearest" not in json.loads(told.folder.facts.read_text())
    for index, task in enumerate(found.tasks):
        assert file_digest(found.folder.task_file(index, task)) == file_digest(told.folder.task_file(index, task))
    files = [run.folder.task_file(3, "again") for run in (found, previous)]
    assert file_digest(files[0]) != file_digest(files[1])


def test_a_continued_run_and_one_earlier_task(tiny):
    whole = train_gan(tiny(STEPS, AGAIN, NEAREST, out="whole"), "test")
    train_gan(tiny(STEPS, NEAREST, out="parts"), "test")
    parts = train_gan(tiny(STEPS, AGAIN, NEAREST, out="parts"), "test")
    previous = train_gan(tiny(STEPS, out="previous"), "test")
    for index, task in enumerate(whole.tasks):
        assert file_digest(parts.folder.task_file(index, task)) == file_digest(whole.folder.task_file(index, task))
    second = [run.folder.task_file(1, "checks") for run in (whole, previous)]
    assert file_digest(second[0]) == file_digest(second[1])
    facts = [json.loads(run.folder.facts.read_text())["nearest"] for run in (whole, parts)]
    assert facts[0] == facts[1]


def test_a_single_task_may_ask_for_it_and_separate_networks_start_from_nothing(tiny):
    run = train_gan(tiny(STEPS, AGAIN, "method={name: mergan}", "tasks.3.init=nearest", out="mergan"), "test")
    assert list(json.loads(run.folder.facts.read_text())["nearest"]) == ["again"]
    alone = train_gan(tiny(STEPS, "method={name: separate}", "tasks.1.init=nearest", out="separate"), "test")
    assert "nearest" not in json.loads(alone.folder.facts.read_text())


def test_no_task_may_be_called_so(tiny):
    with pytest.raises(UserError, match="'nearest' is not usable: it names a way to start"):
        tiny("tasks.1.name=nearest")


def test_a_classifier_starts_from_the_nearest_too(tmp_path):
    data: dict = {"out": str(tmp_path / "run")}
    for word in [
        "sources=[{name: shapes/3, data: 'shapes:6'}]", "limit=60", "network={name: resnet8, size: 16}",
        "adapters={a: 4, b: 0}", "training={batch: 10, first: {epochs: 0.5, learning_rate: 0.05}}", NEAREST,
    ]:  # fmt: skip
        apply_override(data, word)
    run = train_classifier(build(ClassifierExperiment, data), "test")
    found = json.loads(run.folder.facts.read_text())["nearest"]
    assert list(found) == run.tasks[1:]
    assert run.trained == run.tasks
