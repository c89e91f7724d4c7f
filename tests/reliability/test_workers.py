"""Several workers on one comparison: each run is trained once, and what a killed worker left is taken up by another."""

import random
import re
from collections import Counter

import pytest
from faults import Plan
from harness import differences

RUNS = {"first-seed0", "finetune-seed0", "eft-seed0"}


def starts(out: str) -> Counter:
    """How often each run was begun or gone on with."""
    return Counter(re.findall(r"^compared/([\w-]+): image generator", out, flags=re.MULTILINE))


def test_two_workers_train_each_run_once_and_leave_what_one_worker_leaves(server, references, tmp_path):
    reference = references["work"]
    ended = server.run(reference.command, tmp_path, workers=2)
    assert ended.code == 0, ended.err
    assert starts(ended.out) == Counter(RUNS)
    assert differences(tmp_path, reference.after) == []
    again = server.run(reference.command, tmp_path, workers=2)
    assert (again.code, starts(again.out)) == (0, Counter()), again.err
    assert again.out.splitlines() == ["compared/report.html"] * 2


def kill_one_of(workers: int, at: int, server, reference, place) -> bool:
    """Whether the first worker was at work long enough to be killed; the others finish all the same."""
    place.mkdir(exist_ok=True)
    ended = server.run(reference.command, place, Plan(at), workers=workers)
    assert ended.code in (0, -9), ended.err
    begun = starts(ended.out)
    assert begun.keys() == RUNS
    assert begun.total() <= len(RUNS) + 1, "only the run of the killed worker is gone on with"
    assert differences(place, reference.after) == []
    return ended.code == -9


def test_the_run_of_a_killed_worker_is_taken_up_by_another(server, references, tmp_path):
    reference = references["work"]
    fifth_step = [at for at, name in enumerate(reference.points) if name == "step"][4]
    assert kill_one_of(2, fifth_step, server, reference, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_one_of_several_workers_killed_anywhere_loses_nothing(server, references, tmp_path, workers):
    reference, rng = references["work"], random.Random(workers)
    early = len(reference.points) // workers
    killed = [
        kill_one_of(workers, rng.randrange(early), server, reference, tmp_path / str(number)) for number in range(10)
    ]
    assert sum(killed) >= 5
