"""Who trains which run, where several processes share them."""

import contextlib
import os
import shlex
import time
from pathlib import Path

import pytest

from eftgan.commands import main
from eftgan.config import dump
from eftgan.errors import UserError
from eftgan.files import atomic_path, remove_leftovers
from eftgan.gan.kind import GAN
from eftgan.studies.sharing import Job, Pause, share_jobs, train_or_wait


@pytest.fixture
def fake(monkeypatch, tiny):
    """Jobs whose training only notes that they ran; `faults` by name says what goes wrong."""
    trained, faults, finished = [], {}, set()

    def train(experiment, command, *, locked=False):
        name = Path(experiment.out).name
        assert locked
        trained.append(name)
        if name in faults:
            raise faults[name]
        finished.add(name)

    monkeypatch.setattr(GAN, "train", train)
    monkeypatch.setattr(GAN, "is_finished", lambda experiment: Path(experiment.out).name in finished)

    class Fake:
        def __init__(self) -> None:
            self.trained, self.faults, self.finished = trained, faults, finished
            first = Job(tiny(out="first"))
            self.jobs = [first, Job(tiny(out="a"), first), Job(tiny(out="b"), first), Job(tiny(out="alone"))]

    return Fake()


def test_first_tasks_are_trained_before_the_runs_that_need_them(fake):
    share_jobs(GAN, fake.jobs, "test")
    assert fake.trained == ["first", "a", "b", "alone"]


def test_other_runs_are_trained_while_a_first_task_is_in_work_elsewhere(fake, monkeypatch):
    waited = []

    def finish_elsewhere(seconds):
        waited.append(list(fake.trained))
        other.close()
        fake.finished.add("first")

    other = contextlib.ExitStack()
    other.enter_context(fake.jobs[0].folder.locked())
    monkeypatch.setattr("eftgan.studies.sharing.Pause", lambda: Pause(finish_elsewhere))
    share_jobs(GAN, fake.jobs, "test")
    assert waited == [["alone"]]
    assert fake.trained == ["alone", "a", "b"]


def test_a_run_that_fails_is_named_in_the_end_and_the_others_are_trained(fake):
    fake.faults["a"] = RuntimeError("out of memory")
    with pytest.raises(UserError, match=r"1 of 4 runs failed.*\n  a: RuntimeError: out of memory"):
        share_jobs(GAN, fake.jobs, "test")
    assert fake.trained == ["first", "a", "b", "alone"]


def test_runs_whose_first_task_failed_are_left_out(fake):
    fake.faults["first"] = UserError("no data")
    with pytest.raises(UserError, match=r"3 of 4 runs failed.*\n  first: no data"):
        share_jobs(GAN, fake.jobs, "test")
    assert fake.trained == ["first", "alone"]


def test_who_waits_takes_a_run_up_when_its_process_is_gone(fake, monkeypatch):
    other = contextlib.ExitStack()
    other.enter_context(fake.jobs[0].folder.locked())
    monkeypatch.setattr("eftgan.studies.sharing.Pause", lambda: Pause(lambda seconds: other.close()))
    train_or_wait(GAN, fake.jobs[0], "test")
    assert fake.trained == ["first"]


@pytest.mark.slow
def test_the_commands_of_a_list_train_one_run_each_and_the_last_one_reports(tmp_path, tiny, capsys):
    (config := tmp_path / "tiny.yaml").write_text(dump(tiny()))
    out = tmp_path / "compare"
    main(["compare", str(config), "--methods", "finetune,eft", "--out", str(out), "--list", "--local", "3"])
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [words[-2:] for words in commands] == [
        ["--only", name] for name in ("first-seed0", "finetune-seed0", "eft-seed0")
    ]
    assert not out.exists()
    said = []
    for words in reversed(commands):
        assert words[0] == "eftgan"
        main(words[1:])
        said.append(capsys.readouterr().out)
    assert [text.count("image generator") for text in said] == [2, 1, 0]  # the first trains the first task as well
    assert "1 of 3 runs are not finished yet: finetune-seed0" in said[0]
    assert [str(out / "report.html") in text for text in said] == [False, True, True]
    assert "Finetune" in (out / "report.html").read_text()
    with pytest.raises(SystemExit):
        main([*commands[0][1:-1], "ewc-seed0"])
    assert "no such run; there are: first-seed0, finetune-seed0, eft-seed0" in capsys.readouterr().err


def test_what_another_machine_is_writing_is_left_alone(tmp_path):
    target = tmp_path / "file"
    with atomic_path(target) as own:
        own.write_text("x")
        number, _, host = own.name.removesuffix(".tmp").rpartition(".")[2].partition("-")
        dead = own.with_name(own.name.replace(number, "4194305"))  # beyond the largest process id
        theirs, abandoned = (dead.with_name(f".{name}.4194305-{'0' * 8}.tmp") for name in ("theirs", "abandoned"))
        for path in (dead, theirs, abandoned):
            path.write_text("x")
        os.utime(abandoned, (time.time() - 2 * 24 * 3600,) * 2)
        assert host != "0" * 8
        remove_leftovers(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([own.name, theirs.name])
