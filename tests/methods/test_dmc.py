"""DMC: the double distillation by hand, and its two stages."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.classifier.selection import SeenImages
from eftgan.config import build
from eftgan.errors import UserError
from eftgan.methods import MethodStage
from eftgan.methods.dmc import Dmc, double_distillation


def test_the_student_is_taught_the_centred_logits_of_both_teachers():
    student = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]], requires_grad=True)
    loss = double_distillation(student, torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0, 2.0, 2.0]]))
    assert loss.item() == 1.0  # the target is (1, -1, 2, -1, -1)
    loss.backward()
    assert student.grad.tolist() == [pytest.approx([-0.4, 0.4, -0.4, 0.4, 0.4])]


def test_the_fresh_student_knows_the_classes_of_both_teachers(learn, three_tasks):
    learned = learn(Dmc(), three_tasks[:2], epochs=12, rate=0.02)
    assert learned.matrix[1, 0] > 0.6  # of four classes, and no image of the first task was at hand
    assert learned.matrix[1, 1] > 0.6
    assert not learned.method.old
    assert not learned.method.new


def test_a_stage_may_read_other_images_and_go_through_the_whole_schedule(learn, three_tasks, auxiliary, monkeypatch):
    read, rates = [], []
    fetch = SeenImages.__getitem__
    monkeypatch.setattr(SeenImages, "__getitem__", lambda self, at: read.append(self is auxiliary) or fetch(self, at))
    monkeypatch.setattr("eftgan.classifier.trainer.set_rate", lambda optimizer, rate: rates.append(round(rate, 6)))
    learn(Dmc(consolidation=0.25), three_tasks[:2], epochs=2, rate=0.04)
    assert read == [False] * 40 + [False] * 30 + [True] * 10
    assert rates[40:] == [0.04] * 23 + [0.004] * 7 + [0.04] * 8 + [0.004] * 2  # three quarters of each stage
    assert [stage.name for stage in Dmc().stages(first=True)] == [MethodStage.name]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"method": {"name": "dmc"}}, "dmc needs unlabelled images"),
        ({"auxiliary": {"data": "shapes:12"}}, "eft makes no use of unlabelled images"),
        ({"method": {"name": "dmc", "consolidation": 1.0}, "auxiliary": {"data": "shapes:12"}}, "between 0 and 1"),
    ],
)
def test_auxiliary_images_are_named_exactly_where_they_are_used(words, complaint):
    with pytest.raises(UserError, match=complaint):
        build(ClassifierExperiment, {"sources": [{"name": "shapes/3", "data": "shapes:6"}], **words})


def test_a_run_trains_with_auxiliary_images_and_notes_them(tiny_classes):
    from eftgan.classifier.kind import train_classifier

    run = train_classifier(tiny_classes("method=dmc", "auxiliary={data: 'shapes:12', limit: 60}"), "test")
    assert run.trained == run.tasks
    assert run.folder.data_records()["auxiliary images"]["typed"] == "shapes:12"


def test_auxiliary_images_that_were_moved_can_be_named_and_others_are_refused(tiny_classes, tmp_path):
    from eftgan.classifier.kind import train_classifier

    draw = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "before" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)

    def train(folder, tasks):
        words = ("method=dmc", f"auxiliary={{data: {folder}}}", f"sources.0.take={tasks}")
        return train_classifier(tiny_classes(*words), "test")

    train(tmp_path / "before", 1)
    shutil.copytree(tmp_path / "before", tmp_path / "others")
    next((tmp_path / "others").rglob("*.png")).unlink()
    (tmp_path / "before").rename(tmp_path / "moved")
    with pytest.raises(UserError, match=r"auxiliary\.data: .*others holds other images than this run was started with"):
        train(tmp_path / "others", 2)
    with pytest.raises(UserError, match="shapes:12 holds other images"):
        train("'shapes:12'", 2)
    run = train(tmp_path / "moved", 2)
    assert run.trained == run.tasks
    assert run.folder.data_records()["auxiliary images"]["path"] == str(tmp_path / "moved")
