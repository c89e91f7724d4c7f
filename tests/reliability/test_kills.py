"""Killed anywhere, the same command goes on to the same bits: every file, not just the weights."""

import random

import pytest
from harness import choose, differences, fresh_copy


def killed_run_differs(server, reference, place, kills) -> list[str]:
    fresh_copy(reference.before, place)
    server.run_to_the_end(reference.command, place, kills)
    return differences(place, reference.after)


def trials(points: list[str], count: int, seed: int) -> list[list[int]]:
    """Every trial is killed at its own point, and half of them once more on the way on."""
    rng = random.Random(seed)
    return [[at] if rng.random() < 0.5 else [at, rng.randrange(len(points))] for at in choose(points, count, seed)]


def points_of(program: str, reference) -> list[str]:
    """Where a program is killed; one that converts its images before it trains: while it does that."""
    return reference.points[: reference.points.index("step")] if program == "convert" else reference.points


@pytest.mark.parametrize(
    ("program", "count"),
    [("train", 4), ("learn-eft", 1), ("learn-si", 1), ("evaluate", 2), ("prepare", 2), ("convert", 2), ("work", 1)],
)
def test_a_killed_program_repeated_leaves_the_same_files(server, references, tmp_path, program, count):
    reference = references[program]
    for number, kills in enumerate(trials(points_of(program, reference), count, seed=1)):
        differing = killed_run_differs(server, reference, tmp_path / str(number), kills)
        assert differing == [], [reference.points[at] for at in kills]


def test_score_lines_that_are_missing_are_measured_again_to_the_same_lines(server, references, tmp_path):
    """As after a kill between a measurement's logits and its lines: what is there already does not count as carried."""
    reference = references["learn-eft"]
    server.run_to_the_end(reference.command, tmp_path, [])
    (tmp_path / "run" / "scores.jsonl").unlink()
    server.run_to_the_end(reference.command, tmp_path, [])
    assert differences(tmp_path, reference.after) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "count"),
    [
        *(("train", 40), ("learn-eft", 8), ("learn-si", 8), ("learn-lwf", 8)),
        *(("evaluate", 10), ("prepare", 10), ("convert", 20), ("work", 10)),
    ],
)
def test_many_kills_leave_the_same_files(server, references, tmp_path, program, count):
    reference = references[program]
    for number, kills in enumerate(trials(points_of(program, reference), count, seed=2)):
        assert killed_run_differs(server, reference, tmp_path / str(number), kills) == [], kills


@pytest.mark.soak
@pytest.mark.parametrize(
    ("program", "count"),
    [
        *(("train", 65), ("learn-eft", 20), ("learn-si", 20), ("learn-lwf", 20)),
        *(("evaluate", 15), ("prepare", 15), ("convert", 20), ("work", 25)),
    ],
)
def test_two_hundred_kills_leave_the_same_files(server, references, tmp_path, program, count):
    reference = references[program]
    for number, kills in enumerate(trials(points_of(program, reference), count, seed=3)):
        assert killed_run_differs(server, reference, tmp_path / "run", kills) == [], (number, kills)
