"""What would go wrong silently, or late, is refused when training is started."""

from pathlib import Path

import pytest

from eftgan.classifier.kind import train_classifier
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.training.launch import make_accelerator


@pytest.mark.parametrize("kind_of_run", ["gan", "classifier"])
def test_one_image_per_batch_is_refused_before_anything_is_written(tiny, tiny_classes, kind_of_run):
    make, train = {"gan": (tiny, train_gan), "classifier": (tiny_classes, train_classifier)}[kind_of_run]
    experiment = make("training.batch=1")
    with pytest.raises(UserError, match=r"training\.batch=1: the \w+'s BatchNorm needs at least 2 images"):
        train(experiment, "test")
    assert not Path(experiment.out).exists()


def test_a_tracker_that_is_not_installed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", lambda: [])
    with pytest.raises(UserError, match=r"log_with: comet_ml is not installed; pip install comet-ml"):
        make_accelerator(tmp_path, log_with=["comet_ml"])
    with pytest.raises(UserError, match=r"log_with: .*Unsupported logging capability: paper"):
        make_accelerator(tmp_path, log_with=["paper"])
    assert make_accelerator(tmp_path).log_with == []
