"""Two processes: one dies, the other stops soon, and the same command goes on to the same bits."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import Plan
from harness import LEARN, TRAIN, UNDISTURBED, Ended, differences, everything, fresh_copy

from eftgan.tensors import read_tensors

SITE = Path(__file__).parent / "site"
SMALL = ["training.batch=2", "training.accumulation=2", "training.r1=1", "evaluation.features=none"]
TWO = [*TRAIN[:-2], *SMALL, *TRAIN[-1:]]


def torchrun(command: list[str], cwd: Path, plan: Plan = UNDISTURBED) -> Ended:
    """Run under torchrun with two processes; the plan reaches the process of its rank."""
    extra = {"PYTHONPATH": str(SITE), **plan.environment()}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    launcher += ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]
    ended = subprocess.run(
        [*launcher, *command], cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1", **extra},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def assert_both_end_alike(server, command: list[str], place: Path) -> None:
    ended = server.run([str(Path(__file__).parent / "ranks.py"), *command], place, processes=2)
    assert ended.code == 0, ended.err
    held = [line for line in ended.out.splitlines() if line.startswith("holds ")]
    assert len(held) == 2
    assert held[0] == held[1], "both processes end with the same weights and statistics"
    assert "deprecated" not in ended.err


@pytest.fixture(scope="session")
def undisturbed(server, tmp_path_factory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("two")
    assert_both_end_alike(server, TWO, place)
    state, _ = read_tensors(sorted(place.glob("run/state/*"))[-2])
    steps = {int(tensor) for key, tensor in state.items() if key.endswith("/step")}
    assert steps == {2}, "two optimizer steps of two batches each"
    return everything(place)


def assert_dies_and_continues(server, undisturbed: dict[str, str], place: Path, plan: Plan) -> None:
    started = time.monotonic()
    ended = torchrun(TWO, place, plan)
    assert ended.code != 0
    assert "Signal 9 (SIGKILL)" in ended.err, ended.err
    assert time.monotonic() - started < 60 + 30  # of which a loaded machine needs half to import torch
    again = server.run(TWO, place, processes=2)
    assert again.code == 0, again.err
    named = ("run/run.json", "run/report.html", "run/report.md")  # they name the program that was started
    assert [name for name in differences(place, undisturbed) if name not in named] == []


@pytest.mark.slow
def test_one_rank_killed_and_run_again_gives_the_same_files(server, undisturbed, tmp_path):
    assert_dies_and_continues(server, undisturbed, tmp_path, Plan(9, rank="1"))


@pytest.mark.parametrize(
    "method",
    ["packnet", "hat", "tfm", "hnet", *(pytest.param(each, marks=pytest.mark.slow) for each in ("pnn", "side"))],
)
def test_methods_that_share_out_or_write_weights_do_so_alike_in_both_processes(server, tmp_path, method):
    assert_both_end_alike(server, [*LEARN, f"method={{name: {method}}}"], tmp_path)


def test_a_generator_is_pruned_alike_in_both_processes(server, tmp_path):
    assert_both_end_alike(server, [*TWO, "method={name: packnet, retrain: 0.5}"], tmp_path)


def test_two_processes_that_train_on_a_folder_convert_it_once(server, references, tmp_path):
    fresh_copy(references.root / "pictures", tmp_path / "two")
    command = [*TWO, "tasks=[{name: photos, data: raw}]", "training.steps=1"]
    ended = server.run(command, tmp_path / "two", processes=2)
    assert ended.code == 0, ended.err
    assert ended.out.count("raw: 12 images, 38x38 pixels") == 1
    assert len(list((tmp_path / "two/cache/sets").iterdir())) == 1


def test_joint_training_is_the_same_in_both_processes(server, tmp_path):
    """Tasks take turns within a step of two batches; what a task owns is averaged though one batch does without it."""
    assert_both_end_alike(server, [*TWO, "method={name: joint}"], tmp_path)


@pytest.mark.parametrize("processes", [2, 3])
def test_an_evaluation_by_several_processes_leaves_the_files_of_one(server, references, tmp_path, processes):
    reference = references["evaluate"]
    place = fresh_copy(reference.before, tmp_path / "place")
    ended = server.run(reference.command, place, processes=processes)
    assert ended.code == 0, ended.err
    assert ended.out.count("report: ") == 1, "the first process alone speaks"
    assert differences(place, reference.after) == []


def test_a_task_that_several_processes_trained_is_measured_as_by_one(server, tmp_path):
    measured = [*TWO, "evaluation={features: random, samples: 100}"]
    assert server.run(measured, tmp_path, processes=2).code == 0
    scores = tmp_path / "run" / "scores.jsonl"
    lines = [line for line in scores.read_text().splitlines() if "-random" in line]
    scores.unlink()
    command = ["eftgan", "evaluate", "run", "--features", "random", "--fid-samples", "100", "--cache", "another"]
    assert server.run(command, tmp_path).code == 0
    again = [line for line in scores.read_text().splitlines() if "-random" in line]
    assert lines
    assert again == lines


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "at"), [("0", 4), ("0", 40), ("0", 77), ("1", 0), ("1", 5), ("1", 11)])
def test_any_rank_killed_and_run_again_gives_the_same_files(server, undisturbed, tmp_path, rank, at):
    assert_dies_and_continues(server, undisturbed, tmp_path, Plan(at, rank=rank))


@pytest.mark.slow
def test_a_mistake_is_told_by_name_and_nothing_is_written(tmp_path):
    ended = torchrun([*TWO, "tasks.0.data=nowhere.lmdb"], tmp_path)
    assert ended.code != 0
    assert "error: no LMDB at" in ended.err
    assert "in process 1: no LMDB at" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["ccll", "piggyback"])
def test_gates_and_masks_are_the_same_in_both_processes(server, tmp_path, method):
    command = [str(Path(__file__).parent / "ranks.py"), *TWO[1:], f"method={{name: {method}, later_rate: 20}}"]
    ended = server.run(command, tmp_path, processes=2)
    assert ended.code == 0, ended.err
    held = [line for line in ended.out.splitlines() if line.startswith("holds ")]
    assert len(held) == 2
    assert held[0] == held[1]
