"""A search that is killed goes on: no combination is lost or trained twice, and all have the scores that they had."""

import random
from pathlib import Path

import pytest
from faults import Plan
from harness import ROOT, TRAIN

from eftgan.studies.findings import read_findings

SEARCH = [
    *("eftgan", "tune", str(ROOT / "configs/gan/shapes.yaml"), "method.later_rate=1,2,4", "--out", "tuned"),
    *("--on", "checks", "--metric", "KID-random"),
    *TRAIN[2:],
]


def found(place: Path) -> list[tuple[str, float]]:
    return sorted((each.params["method.later_rate"], each.value) for each in read_findings(place / "tuned"))


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory) -> tuple[list, list[str]]:
    place = tmp_path_factory.mktemp("search")
    points = server.points(SEARCH, place)
    return found(place), points


def recipe(place: Path) -> str:
    return (place / "tuned" / "tuned.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_a_killed_search_ends_with_the_same_findings(server, undisturbed, tmp_path, workers):
    (expected, points), rng = undisturbed, random.Random(workers)
    assert [rate for rate, _ in expected] == ["1", "2", "4"]
    for number in range(8):
        place = tmp_path / str(number)
        place.mkdir()
        ended = server.run(SEARCH, place, Plan(rng.randrange(len(points) // workers)), workers=workers)
        assert ended.code in (0, -9), ended.err
        if workers == 1:
            ended = server.run(SEARCH, place)
            assert ended.code == 0, ended.err
        assert found(place) == expected
        assert len(list((place / "tuned").glob("trial-*-seed0/tasks/02-*"))) == 3
        assert recipe(place) == recipe(tmp_path / "0")
