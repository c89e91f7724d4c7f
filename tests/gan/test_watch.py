"""Measuring while a task trains: it disturbs nothing, survives stops, and decides what it is asked to decide."""

import json
from pathlib import Path

import pytest
import torch

from eftgan.adapters import select_task
from eftgan.config import dump
from eftgan.errors import UserError
from eftgan.evaluation.metrics.curve import Curve, Point, read_curve
from eftgan.files import write_text
from eftgan.gan.experiment import open_tasks
from eftgan.gan.kind import GAN, train_gan, watch
from eftgan.gan.networks import build_networks
from eftgan.gan.run import GanRun
from eftgan.gan.trainer import GanTrainer
from eftgan.gan.watch import Watch
from eftgan.runfolder import RunFolder
from eftgan.tensors import read_tensors
from eftgan.training.launch import make_accelerator
from eftgan.training.stopping import Stopped

ONE = "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"
EVERY = "evaluation={features: random, samples: 8, every_steps: 2, every_samples: 8}"
BEST = (EVERY, "training.selection=best", "training.recalibration=2")
PLATEAU = (EVERY, "training.until=plateau", "training.patience=1", "training.steps=8")


def trained(experiment, stop_at: int | None = None) -> GanRun:
    """Training alone: nothing is drawn, scored or reported after a task. It may be stopped after so many steps."""
    folder = RunFolder(Path(experiment.out))
    write_text(folder.config, dump(experiment))
    run = GanRun(folder.path)
    trainer = GanTrainer(
        accelerator=make_accelerator(folder.path), networks=build_networks(experiment), method=experiment.method,
        options=experiment.training, family=experiment.network, seed=experiment.seed, folder=folder, watch=watch(run),
    )  # fmt: skip
    after_step = trainer._after_step

    def stopping(*args):
        trainer._stop.noted = trainer.progress.total == stop_at
        after_step(*args)

    trainer._after_step = stopping
    trainer.run(open_tasks(experiment, 1))
    return run


def curve_of(run: GanRun, index: int = 0) -> Curve:
    curve = read_curve(run.folder.curve(index, run.tasks[index]))
    assert curve is not None
    return curve


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """What a run ends with: shared weights and every task's."""
    files = [*folder.glob("shared.safetensors"), *sorted(folder.glob("tasks/*"))]
    return {f"{path.name}: {key}": tensor for path in files for key, tensor in read_tensors(path)[0].items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


def pretend(monkeypatch, values: dict[int, float]) -> None:
    """Let the measurements after some steps come out as told, 0.5 elsewhere."""
    measure = Watch.measure

    def told(self, generator, step):
        point = measure(self, generator, step)
        point = Point(step, values.get(step, 0.5), 0.0)
        self.curve = Curve(self.curve.task, self.curve.metric, 8, (*self.curve.points[:-1], point))
        return point

    monkeypatch.setattr(Watch, "measure", told)


def test_looking_on_leaves_the_weights_bit_identical_and_draws_the_curve(tiny, capsys):
    words = ("training.recalibration=2", "training.steps=5")
    plain = trained(tiny(*words, out="plain"))
    watched = trained(tiny(*words, EVERY, out="watched"))
    assert_same(weights(plain.folder.path), weights(watched.folder.path))
    for index in (0, 1):
        curve = curve_of(watched, index)
        assert [point.step for point in curve.points] == [2, 4, 5]
        assert curve.kept == 5
        assert (curve.metric, curve.n, curve.foundation) == ("KID-random", 8, index == 0)
    assert "discs, step 4: KID-random" in capsys.readouterr().out


def test_the_last_point_is_a_measurement_of_what_the_task_ends_with(tiny):
    """Averaged weights, and statistics measured again: nothing else would tell whether the task may end."""
    run = trained(tiny(EVERY, ONE, "training.recalibration=2", "training.steps=3"))
    assert measured_again(run, 3) == curve_of(run).points[-1]


def measured_again(run: GanRun, step: int, **changes) -> Point:
    """What a watch of its own says of a finished first task."""
    made = watch(run)
    assert made is not None
    vars(made).update(changes)
    made.begin(0, {})
    generator = GanRun(run.folder.path).generator(0)
    select_task(generator, run.tasks[0])
    return made.measure(generator, step)


@pytest.mark.parametrize(
    ("words", "at"),
    [
        ((*BEST, ONE), 5),
        pytest.param((*PLATEAU, ONE), 3, marks=pytest.mark.slow),
        pytest.param((*BEST, "method.name=finetune"), 10, marks=pytest.mark.slow),
        pytest.param(PLATEAU, 9, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_decides_as_if_nothing_had_happened(tiny, monkeypatch, words, at):
    pretend(monkeypatch, {2: 0.4, 4: 0.3})
    whole = trained(tiny(*words, out="whole"))
    with pytest.raises(Stopped):
        trained(tiny(*words, out="run"), stop_at=at)
    run = trained(tiny(*words, out="run"))
    assert_same(weights(run.folder.path), weights(whole.folder.path))
    for index in range(len(run.tasks)):
        assert curve_of(run, index) == curve_of(whole, index)
        assert curve_of(run, index).kept == 4 if "selection" in words[1] else curve_of(run, index).ended_flat


@pytest.mark.parametrize("method", ["eft", pytest.param("finetune", marks=pytest.mark.slow)])
def test_the_best_step_is_kept_as_if_the_task_had_been_so_long(tiny, monkeypatch, capsys, method):
    pretend(monkeypatch, {4: 0.1})
    best = trained(tiny(*BEST, f"method.name={method}", out="best"))
    assert curve_of(best).kept == 4
    assert "discs: step 4 is kept, KID-random 0.100" in capsys.readouterr().out
    short = trained(tiny(f"method.name={method}", "training.recalibration=2", "training.steps=4", out="short"))
    states = [read_tensors(run.folder.state_files()[-1])[0] for run in (best, short)]
    assert_same(*states)


def test_a_task_ends_when_its_curve_is_flat(tiny, monkeypatch, capsys):
    pretend(monkeypatch, {2: 0.6, 4: 0.4, 6: 0.39})
    flat = trained(tiny(*PLATEAU, ONE, out="flat"))
    curve = curve_of(flat)
    assert ([point.step for point in curve.points], curve.ended_flat) == ([2, 4, 6], True)
    assert "discs: KID-random is flat, so the task ends at step 6 of 8" in capsys.readouterr().out
    short = trained(tiny(ONE, "training.steps=6", out="short"))
    assert_same(weights(flat.folder.path), weights(short.folder.path))


def test_the_first_task_has_a_length_of_its_own(tiny):
    run = trained(tiny("training.first={steps: 3}", "training.steps=1"))
    states = {path.stem for path in run.folder.state_files()}
    assert max(states) == f"{3 + 1 + 2:08d}"  # steps in all, and tasks
    lengths = {task.name: [each.steps for each in run.experiment.lengths(task)] for task in run.experiment.tasks}
    assert lengths == {"discs": [None, 3, 1], "checks": [None, 1]}


def test_a_first_task_that_is_frozen_while_its_curve_falls_is_warned_of(tiny, monkeypatch, capsys):
    pretend(monkeypatch, {2: 0.5, 4: 0.4, 6: 0.2})
    warning = (
        "warning: discs: KID-random still fell by 60 % in the second half of its 6 steps, and every later task stands "
        "on these weights; give it more steps: training.first.steps=12"
    )
    trained(tiny(EVERY, out="eft"))
    said = capsys.readouterr().out
    assert warning in said
    assert said.count("warning") == 1  # of the first task alone
    trained(tiny(EVERY, ONE, "method.name=finetune", out="finetune"))
    assert "warning" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_takes_over_a_first_task_has_its_curve_too(tiny):
    first = train_gan(tiny(EVERY, ONE, "training.steps=2", out="first"), "test")
    run = train_gan(tiny(f"start={first.folder.path}", "training.steps=1", out="run"), "test")
    assert curve_of(run) == curve_of(first)
    assert not run.folder.curve(1, "checks").exists()


def test_what_decides_may_not_change_on_the_way(tiny):
    words = (*BEST, ONE, "training.steps=3")
    trained(tiny(*words))
    with pytest.raises(UserError, match=r"evaluation\.every_samples=8, now it is 9"):
        train_gan(tiny(*words, "evaluation.every_samples=9"), "test")


@pytest.mark.slow
def test_looking_on_may_begin_in_the_middle_of_a_task(tiny):
    whole = trained(tiny(ONE, out="whole"))
    with pytest.raises(Stopped):
        trained(tiny(ONE, out="run"), stop_at=3)
    run = trained(tiny(ONE, EVERY, out="run"))
    assert [point.step for point in curve_of(run).points] == [4, 6]
    assert_same(weights(run.folder.path), weights(whole.folder.path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluation.every_steps=0"], "evaluation.every_steps: greater than 0, not 0"),
        (["evaluation.every_steps=-5"], "evaluation.every_steps: greater than 0, not -5"),
        (["evaluation.every_steps=often"], "evaluation.every_steps"),
        (["evaluation.every_samples=1"], "evaluation.every_samples"),
        (["evaluation.every_metric=lpips"], "evaluation.every_metric"),
        (["evaluation={features: none, every_steps: 2}"], "nothing can be measured with evaluation.features=none"),
        (["training.selection=best"], "training.selection=best needs measurements to go by"),
        (["training.until=plateau"], "training.until=plateau needs measurements to go by"),
        (["training.selection=first"], "training.selection"),
        (["training.until=flat"], "training.until"),
        (["training.patience=0"], "training.patience"),
        ([*PLATEAU, "training.decay=0.5"], "training.decay counts back from an end that is not known"),
        ([EVERY, "training.selection=best", "method.name=packnet"], "packnet divides a task's steps into parts"),
        (["training.first.steps=0"], "training.first.steps"),
        (["training={batch: 4, first: {steps: 3}}"], "task checks: how long?"),
        (
            [*BEST, "evaluation.every_steps=6"],
            "task discs: training.selection=best needs 2 measurements, and evaluation.every_steps=6 gives 1 in 6 steps",
        ),
        ([*PLATEAU, "training.patience=5"], "training.until=plateau needs 6 measurements"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(tiny, tmp_path, words, message):
    with pytest.raises(UserError) as caught:
        train_gan(tiny(*words), "test")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_two_processes_measure_what_one_would(tiny, in_threads):
    run = trained(tiny(EVERY, ONE, "training.steps=2", "evaluation.every_samples=130"))
    last = curve_of(run).points[-1]
    assert in_threads(2, lambda processes: measured_again(run, 2, processes=processes)) == [last, last]


def test_a_damaged_curve_is_named(tiny, tmp_path):
    path = tmp_path / "01-cats.json"
    path.write_text(json.dumps({"task": "cats", "points": [1]}))
    with pytest.raises(UserError, match=r"01-cats.json: not the curve of a task"):
        read_curve(path)


def test_a_search_leaves_out_measurements_unless_they_decide():
    data = {"evaluation": {"features": "random", "every_steps": 5}}
    assert GAN.unmeasured(data) == {"evaluation": {"features": "none", "every_steps": None}}
    for deciding in ({"selection": "best"}, {"until": "plateau"}):
        assert GAN.unmeasured({**data, "training": deciding}) == {}
