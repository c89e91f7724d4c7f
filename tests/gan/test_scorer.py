"""Score lines say what they are about, and hold only as long as it is there: weights, real images, extractor."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch

from eftgan.adapters import shared_state, task_state
from eftgan.data.lmdb import write_lmdb
from eftgan.evaluation.features import load_extractor
from eftgan.gan import task_features
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer, weights_digests
from eftgan.reports.results import studies
from eftgan.reports.runs import load_runs
from eftgan.scores import SUBJECT, Score, append_scores, read_scores
from eftgan.tensors import tensors_digest


@pytest.fixture(scope="module")
def extractor():
    return load_extractor("random")


def measure(run: GanRun, extractor, samples: int = 8) -> list[Score]:
    """What has to be measured or carried over in a whole evaluation, by the run's folder as it is now."""
    scorer = RunScorer(GanRun(run.folder.path), extractor, samples, run.folder.path.parent / "cache")
    lines = [line for through in range(len(run.tasks)) for line in scorer.score(through)]
    return [line for line in lines if line.metric == "FD-random" and line.trained_through in run.tasks]


def shown(run: GanRun) -> dict[tuple[int, int], float]:
    """The values in the report's table."""
    (study,) = studies(load_runs([run.folder.path]))
    (result,) = study.results(study.main)
    cells = [(after, on) for after in range(len(study.tasks)) for on in range(after + 1)]
    return {(after, on): result.cell(after, on).mean for after, on in cells}


def replace_weights(run: GanRun, other: GanRun) -> None:
    """As if the run had been trained again, to another end."""
    for path in [other.folder.shared, *(other.folder.path / "tasks").iterdir()]:
        if path.exists():
            shutil.copyfile(path, run.folder.path / path.relative_to(other.folder.path))


@pytest.mark.parametrize("method", ["eft", pytest.param("finetune", marks=pytest.mark.slow)])
def test_changed_weights_are_measured_again_and_the_report_shows_them(tiny, extractor, method):
    run, other = (
        train_gan(tiny(f"method={{name: {method}}}", f"seed={seed}", out=str(seed)), "test") for seed in (0, 1)
    )
    many, few = 12, 8
    before = measure(run, extractor, many)
    earlier = [("checks", "discs")] * (not run.keeps_tasks)  # a kept task is measured as just learned, and that holds
    assert [(s.trained_through, s.tested_on) for s in before] == [("discs", "discs"), *earlier, ("checks", "checks")]
    assert measure(run, extractor, few) == []
    first = run.folder.scores.read_text()
    replace_weights(run, other)
    after = measure(run, extractor, few)
    assert len(after) == len(before)
    assert not {s.value for s in after} & {s.value for s in before}
    values = {(s.trained_through, s.tested_on): s.value for s in after}
    values.setdefault(("checks", "discs"), values["discs", "discs"])
    assert shown(run) == {  # though they are of fewer images
        (0, 0): values["discs", "discs"], (1, 0): values["checks", "discs"], (1, 1): values["checks", "checks"],
    }  # fmt: skip
    assert run.folder.scores.read_text().startswith(first)
    assert measure(run, extractor, few) == []


def test_weights_that_come_back_are_measured_again_so_that_theirs_are_the_newest_lines(tiny, extractor):
    run, other = (train_gan(tiny(f"seed={seed}", out=str(seed)), "test") for seed in (0, 1))
    copy = GanRun(shutil.copytree(run.folder.path, run.folder.path.with_name("copy")))
    values = []
    for weights in (copy, other, copy):
        replace_weights(run, weights)
        measure(run, extractor)
        values.append(shown(run))
    assert values[0] == values[2] != values[1]


def test_a_collection_that_was_prepared_anew_is_measured_again(tiny, extractor, tmp_path):
    def prepare(seed: int) -> None:
        pixels = np.random.default_rng(seed).integers(0, 256, (24, 3, 38, 38), dtype=np.uint8)
        write_lmdb(tmp_path / "noise.lmdb", [(image, None) for image in pixels], size=38, overwrite=True)

    prepare(0)
    run = train_gan(tiny(f"tasks.0.data={tmp_path / 'noise.lmdb'}"), "test")
    assert len(measure(run, extractor)) == 2
    prepare(1)
    assert [s.tested_on for s in measure(run, extractor)] == ["discs"]
    prepare(1)
    assert measure(run, extractor) == []


def test_another_extractor_measures_again_and_a_line_that_does_not_say_is_not_trusted(tiny, extractor):
    run = train_gan(tiny(), "test")
    measure(run, extractor)
    assert len(measure(run, dataclasses.replace(extractor, digest="other"))) == 2
    lines = read_scores(run.folder.scores)
    run.folder.scores.unlink()
    silent = [
        dataclasses.replace(s, details={k: v for k, v in s.details.items() if k != "extractor_digest"}) for s in lines
    ]
    append_scores(run.folder.scores, silent)
    assert len(measure(run, extractor)) == 2


@pytest.mark.parametrize("method", ["eft", "separate", "finetune", "mergan"])
def test_digests_are_of_the_weights_that_draw(tiny, method):
    run = train_gan(tiny(f"method={{name: {method}}}"), "test")
    for after in range(2):
        generator = run.generator(after)
        assert weights_digests(run, after, range(after + 1)) == [
            tensors_digest({**shared_state(generator), **task_state(generator, task)})
            for task in run.tasks[: after + 1]
        ]


def test_images_are_drawn_where_their_features_are_made_from_noise_of_the_cpu(tiny, extractor, monkeypatch):
    seen = []

    def noting(network, z):
        seen.append((next(network.parameters()).device.type, z.device.type))
        raise InterruptedError

    monkeypatch.setattr(task_features, "generate", noting)
    run = train_gan(tiny(), "test")
    for device in ("cpu", "meta"):  # the second finds the statistics of real images in the cache
        there = dataclasses.replace(extractor, device=torch.device(device))
        scorer = RunScorer(run, there, 8, run.folder.path.parent / "cache")
        with pytest.raises(InterruptedError):
            scorer.score(0)
    assert seen == [("cpu", "cpu"), ("meta", "cpu")]


def test_grids_of_changed_weights_are_drawn_again(tiny):
    run, other = (train_gan(tiny(f"seed={seed}", out=str(seed)), "test") for seed in (0, 1))
    grids = [run.folder.sample_grid(run.tasks, 1, tested) for tested in range(2)]
    before, times = [grid.read_bytes() for grid in grids], [grid.stat().st_mtime_ns for grid in grids]
    for after in range(2):
        run.draw_grids(after)
    assert [grid.stat().st_mtime_ns for grid in grids] == times
    replace_weights(run, other)
    for after in range(2):
        run.draw_grids(after)
    assert all(grid.read_bytes() != old for grid, old in zip(grids, before, strict=True))


def test_lines_hold_until_a_newer_one_of_their_cell_is_about_something_else(tmp_path):
    def line(value: float, n: int, on: str = "a", **details) -> Score:
        return Score("run", "eft", 0, "a", on, "FID", value, n, details)

    same = dict.fromkeys(SUBJECT, "x")
    for key in SUBJECT:
        path = tmp_path / key
        append_scores(path, [line(1, 9, **same), line(2, 9, "b", **same), line(3, 5, **{**same, key: "y"})])
        assert [score.value for score in read_scores(path)] == [2, 3]
        append_scores(path, [line(4, 2, **{**same, key: "y"}, carried=True), line(5, 2)])
        assert [score.value for score in read_scores(path)] == [2, 5]


MANY = "tasks=[{name: discs, data: 'shapes:discs', limit: 150}, {name: checks, data: 'shapes:checks', limit: 90}]"


@pytest.mark.parametrize("method", ["eft", pytest.param("finetune", marks=pytest.mark.slow)])
def test_several_processes_write_the_same_lines_as_one(tiny, extractor, in_threads, method):
    run = train_gan(tiny(MANY, "training.steps=1", f"method={method}"), "test")
    before, written = run.folder.scores.read_bytes(), {}
    for count in (1, 2, 3):

        def measure_all(processes, count=count):
            cache = run.folder.path.parent / f"cache-{count}"
            scorer = RunScorer(GanRun(run.folder.path), extractor, 200, cache, processes=processes)
            if not processes.is_first:
                return scorer.features.help()
            for through in range(2):
                scorer.score(through)
            return scorer.features.dismiss()

        assert in_threads(count, measure_all) == [None] * count
        written[count] = run.folder.scores.read_bytes()
        run.folder.scores.write_bytes(before)
    assert written[1].count(b"FD-random") == (4 if run.keeps_tasks else 5)  # with the floor of either task
    assert written[2] == written[1]
    assert written[3] == written[1]


def test_a_process_without_the_images_ends_all_of_them_with_the_reason(tiny, extractor, in_threads, tmp_path):
    run = train_gan(tiny("training.steps=1"), "test")

    def measure_first(processes):
        mine = GanRun(run.folder.path)
        if not processes.is_first:
            mine.experiment.tasks[0] = dataclasses.replace(mine.experiment.tasks[0], data="nowhere.lmdb")
        scorer = RunScorer(mine, extractor, 8, tmp_path / "cache", processes=processes)
        return scorer.score(0) if processes.is_first else scorer.features.help()

    first, second = in_threads(2, measure_first)
    assert "no LMDB at" in str(second)
    assert "process 1 on " in str(first)
    assert str(second) in str(first)
