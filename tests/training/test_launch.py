"""What would go wrong silently, or late, is refused when training is started."""

import warnings
from pathlib import Path

import pytest
from torch import nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters
from eftgan.adapters.insert import layer_names
from eftgan.classifier.kind import train_classifier
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.gan.trainer import GanTrainer
from eftgan.runfolder import RunFolder
from eftgan.training.experiment import Adapters, refuse_unmatched_patterns
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


@pytest.mark.parametrize("word", ["adapters.exclude=[stem*, 'layer9.*']", "adapters.sizes={'layer9.*': [2, 2]}"])
def test_a_pattern_that_names_no_layer_is_refused(tiny, tiny_classes, word):
    experiment = tiny(word)
    with pytest.raises(UserError, match=r"adapters\.\w+: 'layer9\.\*' names no .* \(generator: stem\.0, upsample"):
        train_gan(experiment, "test")
    assert not Path(experiment.out).exists()
    with pytest.raises(UserError, match=r"names no .* \(classifier: stem\.0, "):
        train_classifier(tiny_classes(word), "test")


def test_patterns_may_name_layers_of_one_network_whatever_lies_around_them():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 4, 3)), nn.Linear(4, 2))
    names = layer_names(network)
    assert names == ["0", "2.0", "3"]
    insert_adapters(network, AdapterConfig(2, 2, exclude=("2.*",), heads=("3",), gate="channel"))
    add_task(network, "one")
    assert layer_names(network) == names
    refuse_unmatched_patterns(Adapters(exclude=["2.?"], sizes={"down*": (2, 2)}), {"a": network, "b": Down()})


class Down(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 3, 1)


def test_after_a_loss_that_is_not_finite_lower_rates_are_accepted_and_noted(tiny, monkeypatch):
    steps, micro_step = [], GanTrainer._micro_step

    def diverging(self, task, micro, *further):
        losses = micro_step(self, task, micro, *further)
        steps.append((task, micro))
        wild = self.options.learning_rate > 0.1 and micro == 3
        return {role: loss * float("nan") if wild else loss for role, loss in losses.items()}

    monkeypatch.setattr(GanTrainer, "_micro_step", diverging)
    with pytest.raises(UserError, match=r"NaN by step 4; .* Run again with a lower learning rate"):
        train_gan(tiny("training.learning_rate=0.2"), "test")
    folder = RunFolder(Path(tiny().out))
    assert folder.read_facts()["diverged"] == {"task": "discs", "step": 4}
    with pytest.raises(UserError, match=r"holds a run with training\.learning_rate=0\.2, now it is 0\.3"):
        train_gan(tiny("training.learning_rate=0.3"), "test")
    with pytest.raises(UserError, match=r"holds a run with training\.betas"):
        train_gan(tiny("training.learning_rate=0.1", "training.betas=[0.1, 0.9]"), "test")
    steps.clear()
    run = train_gan(tiny("training.learning_rate=0.1"), "test")
    assert steps[:2] == [("discs", 2), ("discs", 3)]  # from the last good state on
    assert run.trained == ["discs", "checks"]
    facts = folder.read_facts()
    assert facts["history"] == [{"state": "00000002", "changed": {"training.learning_rate": [0.2, 0.1]}}]
    assert "diverged" not in facts


def test_rates_of_a_run_without_such_a_loss_stay(tiny):
    train_gan(tiny(), "test")
    with pytest.raises(UserError, match=r"holds a run with training\.learning_rate"):
        train_gan(tiny("training.learning_rate=1e-5"), "test")


def test_what_pytorch_says_of_an_argument_that_we_keep_is_not_shown(tmp_path):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        make_accelerator(tmp_path)
        warnings.warn("`broadcast_buffers` is deprecated. Use `forward_sync_buffers`", FutureWarning, stacklevel=1)
    assert not [each for each in shown if "broadcast_buffers" in str(each.message)]
