"""Run folders of an earlier version: sampled, measured, continued by a task, and finished from the middle of one."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from eftgan.adapters import load_task_file, using_task
from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.config import load
from eftgan.evaluation.features import load_extractor
from eftgan.files import file_digest
from eftgan.gan.networks import build_generator
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.kinds import load_kind, open_run
from eftgan.names import GENERATOR
from eftgan.reports.write import write_report
from eftgan.runfolder import RunFolder
from eftgan.tensors import read_tensors
from eftgan.training.checkpoint import read_shared

OLD = Path(__file__).parent / "old_runs"


@pytest.fixture
def old(tmp_path):
    """A copy of an old run's folder; without the second task's file it stands in the middle of that task."""

    def copy(name: str, *, finished: bool) -> Path:
        folder = tmp_path / name
        shutil.copytree(OLD / name, folder)
        if finished:
            shutil.rmtree(folder / "state")
        else:
            next((folder / "tasks").glob("02-*")).unlink()
        return folder

    return copy


def go_on(folder: Path, *words: str):
    kind = load_kind(open_run(folder).experiment.kind)
    return kind.train(load(kind.experiment_type, folder / "config.yaml", [f"out={folder}", *words]), "test")


def test_an_old_run_is_sampled_and_described(old):
    run = GanRun(old("gan-eft", finished=True))
    assert run.trained == ["discs", "checks"]
    drawn = {task: run.sample(task, 4, seed=1, generator=run.generator(1)) for task in run.trained}
    assert all(images.shape == (4, 3, 32, 32) for images in drawn.values())
    assert not torch.equal(drawn["discs"], drawn["checks"])
    assert "StackGAN-v2, sizes [32], ngf 2, ndf 2" in run.describe()


def test_an_old_run_is_continued_by_a_task_and_keeps_its_files(old):
    folder = old("gan-eft", finished=True)
    before = {path.name: file_digest(path) for path in (folder / "tasks").iterdir()}
    run = go_on(folder, "tasks+={name: stripes, data: 'shapes:stripes', limit: 16}")
    assert run.trained == ["discs", "checks", "stripes"]
    assert before.items() <= {path.name: file_digest(path) for path in (folder / "tasks").iterdir()}.items()


def test_an_old_run_is_measured_and_reported(old):
    run = GanRun(old("gan-eft", finished=True))
    lines = RunScorer(run, load_extractor("random"), 12, run.folder.path / "statistics").score(1)
    assert {(line.tested_on, line.metric, line.n) for line in lines} >= {("checks", "FD-random", 12)}
    page = write_report([run.folder.path], run.folder.report)[0].read_text()
    assert "EFT" in page
    assert "One image generator, 2 tasks in a row" in page


def test_a_task_file_that_training_wrote_loads_into_a_network(old):
    folder = old("gan-eft", finished=True)
    run = GanRun(folder)
    generator = build_generator(run.experiment)
    read_shared(run.folder, {GENERATOR: generator})
    assert load_task_file(generator, folder / "tasks" / "02-checks.safetensors") == "checks"
    z = torch.randn(2, 4)
    with using_task(generator.eval(), "checks"), using_task(run.generator(1), "checks"), torch.no_grad():
        assert torch.equal(generator(z)[0], run.generator(1)(z)[0])


def test_an_old_classifier_goes_on_with_plain_adam_and_a_finished_one_is_not_opened_again(old):
    folder = old("classifier-lwf", finished=True)
    kind, asked = load_kind("classifier"), load(ClassifierExperiment, folder / "config.yaml")
    assert asked.training.fused_adam
    assert not kind.as_begun(asked, RunFolder(folder)).training.fused_adam
    RunFolder(folder).note_finished()
    assert kind.is_finished(dataclasses.replace(asked, out=str(folder)))


# BatchNorm undoes these biases: their gradients are rounding errors, whose direction Adam follows at its full rate
# (0.01 per step), and running means follow them. Another machine rounds otherwise.
UNDONE = ("depth.bias", "spatial.bias", "running_mean")


@pytest.mark.parametrize("name", ["gan-eft", "gan-mergan", "classifier-lwf"])
def test_a_state_in_the_middle_of_a_task_is_continued_to_the_same_end(old, name):
    """Up to rounding: the machine that made the folder may have been another one."""
    folder = old(name, finished=False)
    run = go_on(folder)
    (ended,) = (folder / "tasks").glob("02-*")
    (wanted,) = (OLD / name / "tasks").glob("02-*")
    ours, theirs = (read_tensors(path)[0] for path in (ended, wanted))
    assert ours.keys() == theirs.keys()
    for key, tensor in ours.items():
        near = 0.03 if key.endswith(UNDONE) else 1e-3
        torch.testing.assert_close(
            tensor, theirs[key], rtol=1e-3, atol=near, msg=lambda text, key=key: f"{key}: {text}"
        )
    assert run.trained == run.tasks
