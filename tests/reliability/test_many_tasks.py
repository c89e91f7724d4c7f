"""What a run costs does not grow with its tasks: finished ones leave the networks, the states and the measuring."""

from pathlib import Path

import pytest
import torch

from eftgan.adapters import task_names
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.methods import METHODS
from eftgan.names import GENERATOR
from eftgan.runfolder import RunFolder
from eftgan.scores import UNCHANGED, read_scores
from eftgan.tensors import read_tensors, tensors_digest
from eftgan.training.stopping import Stopped, StopSignal
from eftgan.training.trainer import Trainer

KINDS = ("discs", "checks", "stripes", "discs", "checks")


def tasks(count=5):
    listed = (f"{{name: t{i}, data: 'shapes:{kind}', limit: 24}}" for i, kind in enumerate(KINDS[:count]))
    return f"tasks=[{', '.join(listed)}]"


@pytest.fixture
def tiny(tiny):
    """Three steps a task."""
    return lambda *words, out="run": tiny("training.steps=3", *words, out=out)


@pytest.fixture
def known(monkeypatch):
    """The tasks that the networks have when each task begins to train."""
    found = []
    grow = Trainer.grow

    def noting(self, names, index, head_size=None):
        grow(self, names, index, head_size)
        found.append([task_names(network) for network in self.networks.values()])

    monkeypatch.setattr(Trainer, "grow", noting)
    return found


def files_of(run):
    return {path.name: tensors_digest(read_tensors(path)[0]) for path in run.folder.task_files()}


def stop_after(steps, monkeypatch):
    calls = iter(range(1, 10_000))
    monkeypatch.setattr(StopSignal, "requested", lambda self: next(calls) == steps)


@pytest.mark.parametrize(
    "method",
    ["eft", *(pytest.param(name, marks=pytest.mark.slow) for name in ("eft, discriminator: full", "separate"))],
)
def test_networks_have_the_first_the_last_and_the_task_in_training(tiny, known, method):
    train_gan(tiny(tasks(), f"method={{name: {method}}}"), "test")
    networks = len(known[0])
    expected = [["t0"], ["t0", "t1"], ["t0", "t1", "t2"], ["t0", "t2", "t3"], ["t0", "t3", "t4"]]
    assert known == [[names] * networks for names in expected]


def test_methods_that_look_back_keep_all_tasks(tiny, known):
    train_gan(tiny(tasks(), "method={name: mergan}"), "test")
    assert known[-1][0] == ["t0", "t1", "t2", "t3", "t4"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["eft", "eft, discriminator: full"])
def test_going_on_in_the_midst_of_a_late_task_changes_no_bit(tiny, monkeypatch, method):
    options = (tasks(), f"method={{name: {method}}}")
    whole = train_gan(tiny(*options, out="whole"), "test")
    stop_after(14, monkeypatch)  # the second of three steps of the fourth task, as it is asked once more after a task
    with pytest.raises(Stopped):
        train_gan(tiny(*options, out="parts"), "test")
    monkeypatch.undo()
    assert files_of(train_gan(tiny(*options, out="parts"), "test")) == files_of(whole)


def test_a_task_may_start_from_one_that_was_let_go(tiny, known):
    fourth = "tasks.3.init=t1"
    run = train_gan(tiny(tasks(), fourth, "training.learning_rate=1e-12"), "test")
    assert known[3][0] == ["t0", "t2", "t3"]
    own = {index: read_tensors(path)[0] for index, path in enumerate(run.folder.task_files())}
    weights = [key for key in own[0] if key.startswith(GENERATOR) and key.endswith("weight")]
    far = {key for key in weights if not torch.allclose(own[3][key], own[1][key], atol=1e-6)}
    assert not far


def test_states_and_score_lines_have_the_same_size_after_any_task(tiny):
    run = train_gan(tiny(tasks(), "evaluation={features: random, samples: 8}"), "test")
    lines = read_scores(run.folder.scores)
    by_task = {task: [line.metric for line in lines if line.trained_through == task] for task in run.tasks}
    assert by_task["t1"].count(UNCHANGED) == by_task["t4"].count(UNCHANGED) == 1
    assert len(by_task["t1"]) == len(by_task["t4"])
    shorter = train_gan(tiny(tasks(3), out="shorter"), "test")
    sizes = [each.folder.state_files()[-1].stat().st_size for each in (shorter, run)]
    assert sizes[0] == sizes[1]


def test_a_state_whose_files_were_changed_is_refused(tiny, monkeypatch):
    stop_after(14, monkeypatch)
    with pytest.raises(Stopped):
        train_gan(tiny(tasks()), "test")
    monkeypatch.undo()
    first, second = RunFolder(Path(tiny().out)).task_files()[:2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(UserError, match=r"01-t0\.safetensors: not the file that the resume state goes with"):
        train_gan(tiny(tasks()), "test")


def test_every_method_says_whether_it_looks_back():
    looks_back = {name for name, method in METHODS.items() if not method().lets_go}
    assert {"finetune", "ewc", "lwf", "mergan", "joint"} <= looks_back
    assert not {"eft", "batche", "fixed", "separate"} & looks_back
