"""`eftgan train`: the same as the scripts, with configs by name, for every kind there is."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from eftgan.commands import command_line, main
from eftgan.commands.train import data_words, run_script
from eftgan.errors import UserError
from eftgan.gan.experiment import open_tasks
from eftgan.gan.kind import GAN
from eftgan.gan.run import GanRun
from eftgan.kinds import KINDS
from eftgan.training.stopping import Stopped

from ..conftest import ROOT, TINY, TINY_CLASSES


@pytest.fixture
def planned(monkeypatch) -> list:
    """What would be trained, and by which command."""
    found: list = []
    monkeypatch.setattr(GAN, "train", lambda experiment, command: found.append((experiment, command)))
    return found


EPOCHS = "tasks=[{name: discs, data: 'shapes:discs', epochs: 2}, {name: checks, data: 'shapes:checks', epochs: 3}]"


def refused(capsys, *words: str) -> str:
    """The message with which a command line is refused."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert shown.count("error:") == 1
    return shown


def test_a_run_is_trained_continued_and_given_a_further_task(tmp_path, capsys):
    out = tmp_path / "run"
    main(["train", "gan", *TINY, f"out={out}", "training.steps=2"])
    shown = capsys.readouterr().out
    assert "2 tasks trained: discs, checks" in shown
    assert (
        f"eftgan evaluate {out} --fid-samples 500 --reference-samples 500 comes next" in shown
    )  # nothing was measured: evaluation.features is none
    main(["train", "gan", "--resume", str(out), "tasks+={name: dots, data: 'shapes:stripes', limit: 24}"])
    assert "3 tasks trained: discs, checks, dots" in capsys.readouterr().out


def test_a_measured_run_is_not_told_to_be_measured(tmp_path, capsys):
    words = ["evaluation={features: random, samples: 4}", "training.steps=1"]
    main(["train", "gan", *TINY, *words, f"out={tmp_path / 'run'}"])
    assert "comes next" not in capsys.readouterr().out


def test_a_classifier_is_trained_and_a_gans_command_refuses_it(tmp_path, capsys):
    out = tmp_path / "run"
    main(["train", "classifier", *TINY_CLASSES, f"out={out}", "sources.0.take=1", "method=finetune"])
    assert "1 tasks trained: shapes-1" in capsys.readouterr().out
    for words in (["sample", str(out)], ["evaluate", str(out)]):
        assert f"{out} is a classifier run; use: eftgan classify {out}" in refused(capsys, *words)
    shown = refused(capsys, "train", "gan", "--resume", str(out))
    assert f"{out} is a classifier run; use: eftgan train classifier --resume {out}" in shown


@pytest.mark.parametrize(
    ("words", "out", "method"),
    [
        ([], "runs/shapes", "eft"),
        (["--config", "shapes"], "runs/shapes", "eft"),
        (["--config", "gan/shapes", "method=finetune"], "runs/shapes", "finetune"),
        (["method=ewc", "--config", "shapes", "method.strength=7"], "runs/shapes", "ewc"),
        (["--config", "shapes/eft-plus"], "runs/shapes-eft-plus", "eft"),
        (["--config", str(ROOT / "configs/gan/cats_birds_churches_towers_32.yaml"), "out=x"], "x", "eft"),
    ],
)
def test_configs_are_found_by_name_from_any_folder(planned, tmp_path, monkeypatch, words, out, method):
    monkeypatch.chdir(tmp_path)
    main(["train", "gan", *words])
    ((experiment, command),) = planned
    assert (experiment.out, experiment.method.name) == (out, method)
    assert command == shlex.join(["eftgan", "train", "gan", *words])
    assert getattr(experiment.method, "strength", 7) == 7


def test_a_file_that_exists_wins_over_a_name(planned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes").write_text((ROOT / "configs/gan/shapes.yaml").read_text() + "seed: 5\n")
    main(["train", "gan", "--config", "shapes"])
    assert planned[0][0].seed == 5


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["gan", "--config", "shape"], ["no such config file", "did you mean shapes?", "There are: cats_birds"]),
        (["gan", "--config", "configs/gan/shapes.yaml"], ["did you mean shapes?"]),
        (["gan", "--config", "shapes/eft_plus"], ["did you mean shapes/eft-plus?"]),
        (["gan", "--config", "zzz"], ["zzz: no such config file", "; there are: cats_birds"]),
        (["gan", "--config", "cifar100_20"], ["use: eftgan train classifier --config cifar100_20"]),
        (["gan", "--config", "classifier/shapes"], ["use: eftgan train classifier --config classifier/shapes"]),
        (["gan", "--resume", "."], ["no run there to continue"]),
        (["gan", "shapes"], ["'shapes': expected key=value"]),
        (["gna"], ["invalid choice: 'gna'"]),
        ([], ["required: KIND"]),
    ],
)
def test_what_cannot_be_trained_is_refused(capsys, tmp_path, monkeypatch, words, messages):
    monkeypatch.chdir(tmp_path)
    shown = refused(capsys, "train", *words)
    for message in messages:
        assert message in shown


@pytest.mark.parametrize(("kind", "key"), [("gan", "method[mergan].strength"), ("classifier", "method[lwf].strength")])
def test_help_of_a_kind_lists_its_configs_and_every_key(capsys, kind, key):
    with pytest.raises(SystemExit) as ended:
        main(["train", kind, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for text in ("configs by name:\n", "\n  shapes\n", key, "training.batch: int", "--resume RUN"):
        assert text in shown


def test_a_new_kind_is_trained_by_its_name(monkeypatch, tmp_path, capsys):
    found: list = []
    toy = SimpleNamespace(
        name="toy",
        experiment_type=GAN.experiment_type,
        train=lambda experiment, command: found.append(experiment) or SimpleNamespace(summary=lambda: "all done"),
    )
    monkeypatch.setitem(sys.modules, "toy_kind", SimpleNamespace(TOY=toy))
    monkeypatch.setitem(KINDS, "toy", "toy_kind:TOY")
    main(["train", "toy", "--config", str(ROOT / "configs/gan/shapes.yaml"), f"out={tmp_path}"])
    assert found[0].out == str(tmp_path)
    assert "all done" in capsys.readouterr().out
    assert "toy" in refused(capsys, "train", "tooy")


def paint(folder: Path, count: int = 4) -> None:
    """A folder of pictures."""
    folder.mkdir()
    for number in range(count):
        Image.new("RGB", (40, 40), (60 * number, 0, 0)).save(folder / f"{number}.png")


def test_folders_become_tasks_of_a_run_that_is_called_as_the_first(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    paint(tmp_path / "my photos")
    paint(tmp_path / "birds-2024")
    main(["train", "gan", "--data", "my photos", *TINY[:-1], "training.steps=1"])
    assert "my photos: 4 images, 38x38 pixels" in capsys.readouterr().out
    first = (tmp_path / "runs/my-photos/tasks/01-my-photos.safetensors").read_bytes()
    for _ in range(2):  # the same command again adds nothing
        main(["train", "gan", "--resume", "runs/my-photos", "--data", "birds-2024"])
        assert GanRun("runs/my-photos").trained == ["my-photos", "birds_2024"]
    assert (tmp_path / "runs/my-photos/tasks/01-my-photos.safetensors").read_bytes() == first
    assert data_words("gan", [], True) == []
    assert data_words("classifier", ["a/flowers-17.tar.gz"], False) == [
        "out=runs/flowers_17",
        'sources=[{"name": "flowers_17", "data": "a/flowers-17.tar.gz"}]',
    ]


def test_a_run_keeps_the_images_of_its_start_whatever_becomes_of_their_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    paint(tmp_path / "photos")
    words = ["train", "gan", "--data", "photos", *TINY[:-1], "training.steps=1", "out=run"]
    main(words)
    (tmp_path / "photos/3.png").unlink()
    capsys.readouterr()
    main([*words, "tasks+={name: discs, data: 'shapes:discs', limit: 8}"])
    assert "photos:" not in capsys.readouterr().out
    assert len(GanRun("run").real_images(0)) == 4
    shutil.rmtree(json.loads((tmp_path / "run/run.json").read_text())["data"]["photos"]["set"])
    with pytest.raises(UserError, match="photos holds other images than this run was started with"):
        open_tasks(GanRun("run").experiment, 1)[0].images  # noqa: B018


@pytest.mark.parametrize("program", ["eftgan", "script"])
def test_ctrl_c_before_anything_has_begun_is_a_message_too(monkeypatch, capsys, program):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("eftgan.kinds.find_config", interrupt)  # as if in the midst of the first imports
    with pytest.raises(SystemExit) as ended:
        main(["train", "gan"]) if program == "eftgan" else run_script("gan", "doc", [])
    assert ended.value.code == 130
    assert capsys.readouterr().err.startswith("\ninterrupted; ")


def test_what_comes_next_can_be_typed_wherever_the_run_is(tmp_path, capsys):
    out = tmp_path / "my runs" / "it's"
    main(["train", "gan", f"out={json.dumps(str(out))}", *TINY, "training.steps=1"])
    typed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  eftgan ")]
    assert len(typed) == 3
    assert all(shlex.split(line, comments=True)[2] == str(out) for line in typed)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(Stopped("saved after step 3"), 143, "saved after step 3."), (KeyboardInterrupt(), 130, "interrupted; what was")],
)
def test_a_stopped_run_says_how_to_go_on(monkeypatch, capsys, error, code, message):
    def stop(experiment, command):
        raise error

    monkeypatch.setattr(GAN, "train", stop)
    with pytest.raises(SystemExit) as ended:
        main(["train", "gan", "out=a b"])
    assert ended.value.code == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Continue with: eftgan train gan 'out=a b'\n" in shown


@pytest.mark.parametrize(
    ("program", "script", "processes", "by_accelerate", "wanted"),
    [
        ("/usr/bin/eftgan", None, 1, False, "eftgan train gan"),
        ("/lib/eftgan/__main__.py", None, 1, False, "python -m eftgan train gan"),
        ("/lib/eftgan/__main__.py", None, 1, True, "accelerate launch -m eftgan train gan"),
        ("/lib/eftgan/__main__.py", None, 2, False, "torchrun --nproc_per_node 2 -m eftgan train gan"),
        ("train_gan.py", "train_gan.py", 1, False, "python train_gan.py train gan"),
        ("train_gan.py", "train_gan.py", 1, True, "accelerate launch train_gan.py train gan"),
        ("train_gan.py", "train_gan.py", 2, False, "torchrun --nproc_per_node 2 train_gan.py train gan"),
        ("train_gan.py", "train_gan.py", 2, True, "accelerate launch --num_processes 2 train_gan.py train gan"),
    ],
)
def test_the_same_is_started_again_the_same_way(monkeypatch, program, script, processes, by_accelerate, wanted):
    monkeypatch.setattr(sys, "argv", [program])
    if by_accelerate:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    assert command_line(["train", "gan"], script) == wanted


def test_a_run_on_two_hosts_says_how_many_processes_each_had(monkeypatch):
    for name, value in {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    told = "torchrun --nnodes 2 --nproc_per_node 4 train_gan.py"
    assert command_line([], "train_gan.py") == told
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    assert command_line([], "train_gan.py") == "accelerate launch --num_machines 2 --num_processes 8 train_gan.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [EPOCHS, "training.steps=40"],
            "training.steps=40 has no effect where the config sets tasks.0.epochs, tasks.1.epochs: for training.steps "
            "to count, add tasks.0.epochs=null, tasks.1.epochs=null",
        ),
        (
            [EPOCHS, "training.first.steps=40"],
            "where the config sets tasks.0.epochs: for training.first.steps to count",
        ),
        (["training.epochs=40"], "for training.epochs to count, add training.steps=null"),
        (
            ["training.steps=null", "training.first.steps=9", "method=separate", "training.first.epochs=1"],
            "training.first.epochs=1 has no effect where the config sets training.first.steps",
        ),
    ],
)
def test_a_length_that_no_task_would_use_is_refused_in_one_line(capsys, planned, words, message):
    assert message in refused(capsys, "train", "gan", *TINY, *words)
    assert not planned


@pytest.mark.parametrize(
    ("words", "lengths"),
    [
        ([EPOCHS], [None, None]),  # a config may have steps that are not used
        ([EPOCHS, "tasks.1.epochs=null", "training.steps=40"], [None, 40]),
        (["training.steps=null", "training.epochs=4"], [None, None]),
        (["training.steps=40", "training.first.steps=9"], [9, 40]),
        ([EPOCHS, "tasks.0.steps=5", "tasks.1.steps=6"], [5, 6]),
    ],
)
def test_a_length_that_some_task_uses_is_taken(planned, words, lengths):
    main(["train", "gan", *TINY, *words])
    experiment = planned[0][0]
    found = [next(each for each in experiment.lengths(task) if each.steps or each.epochs) for task in experiment.tasks]
    assert [length.steps for length in found] == lengths
