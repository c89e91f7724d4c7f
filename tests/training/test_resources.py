"""Processes and threads belong to a run: said at the start, kept, and the same when it goes on."""

import json

import pytest
import torch

from eftgan.classifier.kind import train_classifier
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.training import kind
from eftgan.training.resources import asked_in_vain, resources_for

ONE = "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"


@pytest.fixture
def threads():
    """Set the threads that the machine offers; one again afterwards."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


@pytest.fixture
def used(monkeypatch) -> list[int]:
    """The threads with which tasks were trained."""
    found: list[int] = []
    trained = kind.Kind._train

    def watch(self, *args):
        found.append(torch.get_num_threads())
        return trained(self, *args)

    monkeypatch.setattr(kind.Kind, "_train", watch)
    return found


def test_a_run_goes_on_with_the_threads_that_it_was_begun_with(tiny, threads, used, capsys):
    threads(2)
    run = train_gan(tiny(ONE), "test")
    assert "image generator, EFT, seed 0, on cpu (1 process, 2 threads)" in capsys.readouterr().out
    assert run.folder.read_facts()["threads"] == 2
    threads(1)  # as under another launcher
    train_gan(tiny(), "test")
    assert used == [2, 2]
    assert torch.get_num_threads() == 1  # outside of training nothing changes
    assert "training.threads=1 takes what is offered now" in capsys.readouterr().out
    assert "history" not in run.folder.read_facts()


def test_other_threads_are_taken_when_asked_for_and_noted(tiny, threads, used):
    run = train_gan(tiny(ONE), "test")
    train_gan(tiny("training.threads=2"), "test")
    assert used == [1, 2]
    facts = run.folder.read_facts()
    assert facts["threads"] == 2
    assert facts["history"] == [{"state": "00000007", "changed": {"training.threads": [1, 2]}}]
    train_gan(tiny(), "test")
    assert run.folder.read_facts()["history"] == facts["history"]


def test_a_run_from_before_threads_were_written_down_goes_on(tiny, threads, used):
    run = train_gan(tiny(ONE), "test")
    facts = {key: value for key, value in run.folder.read_facts().items() if key not in ("threads", "processes")}
    run.folder.facts.write_text(json.dumps(facts))
    train_gan(tiny(), "test")
    assert used == [1, 1]


def test_every_task_says_its_place_and_length(tiny, tiny_classes, capsys):
    train_gan(tiny(), "test")
    shown = capsys.readouterr().out
    assert shown.index("task 1 of 2: discs, 6 steps\n") < shown.index("task 2 of 2: checks, 6 steps\n")
    train_classifier(tiny_classes("sources.0.take=1", "method=finetune", out="classes"), "test")
    assert "task 1 of 1: shapes-1, 2 steps\n" in capsys.readouterr().out


def test_another_number_of_processes_is_refused_unless_asked_for(tiny):
    run = train_gan(tiny(ONE), "test")
    assert run.folder.read_facts()["processes"] == 1
    with pytest.raises(UserError, match=r"began with 1 process, and now there are 2: .* training\.processes=2"):
        resources_for(tiny(), run.folder, 2)
    assert resources_for(tiny("training.processes=2"), run.folder, 2).processes == 2
    assert resources_for(tiny(ONE), run.folder, 2).processes == 2  # nothing is left to train
    with pytest.raises(UserError, match=r"training\.processes=2, but 1 process was started"):
        train_gan(tiny("training.processes=2"), "test")


def test_accelerate_that_starts_one_process_for_several_is_told(tiny, monkeypatch, capsys):
    assert not asked_in_vain()
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    assert not asked_in_vain()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")  # as `accelerate launch --cpu --num_processes 2` does
    train_gan(tiny(ONE, "training.steps=1"), "test")
    assert "asked for several processes and started one; on CPUs use torchrun" in capsys.readouterr().out
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not asked_in_vain()
