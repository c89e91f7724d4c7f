"""What trackers are told: read back from the files that TensorBoard reads."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from eftgan.classifier.kind import train_classifier
from eftgan.gan.kind import train_gan
from eftgan.scores import read_scores
from eftgan.training.tracking import log_pictures, named_scores

pytest.importorskip("tensorboard", reason="tensorboard is not installed")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def told(run) -> EventAccumulator:
    """What the run's tracker wrote."""
    folders = {path.parent for path in (run.folder.path / "trackers").rglob("events.out.tfevents.*")}
    (folder,) = folders
    return EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0}).Reload()


def curve(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(tag)]


def picture(events: EventAccumulator, tag: str, place: int = 0) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(events.Images(tag)[place].encoded_image_string)).convert("RGB"))


def test_losses_scores_growth_and_grids_of_a_gan_reach_the_tracker(tiny):
    words = ["log_with=[tensorboard]", "method={name: finetune}", "training.snapshot_every_steps=3"]
    run = train_gan(tiny(*words, "evaluation={features: random, samples: 8}"), "test")
    events, scores = told(run), read_scores(run.folder.scores)
    values = {(s.trained_through, s.tested_on, s.metric): s.value for s in scores}
    assert [event.step for event in events.Scalars("discs/generator")] == [2, 4, 6]
    # six steps a task: a task's curve has a point after each task from its own on
    assert curve(events, "discs/FD-random") == [
        (6, values["discs", "discs", "FD-random"]),
        (12, values["checks", "discs", "FD-random"]),
    ]
    assert curve(events, "checks/FD-random") == [(12, values["checks", "checks", "FD-random"])]
    assert curve(events, "discs/real-KID-random") == [(6, values["real", "discs", "KID-random"])]
    assert curve(events, "checks/growth") == [(12, values["checks", "checks", "growth"])]
    assert set(events.Tags()["images"]) == {
        "samples/01-discs", "samples/02-checks", "real/01-discs", "real/02-checks", "discs/32px", "checks/32px",
    }  # fmt: skip
    assert [event.step for event in events.Images("samples/01-discs")] == [6, 12]
    assert [event.step for event in events.Images("discs/32px")] == [3, 6]
    for place in range(2):
        grid = np.array(Image.open(run.folder.sample_grid(run.tasks, place, 0)))
        assert np.array_equal(picture(events, "samples/01-discs", place), grid)
    drawn = np.array(Image.open(run.folder.samples / "progress" / "discs-step-000003-32px.png"))
    assert np.array_equal(picture(events, "discs/32px"), drawn)


def test_a_continued_run_tells_only_what_is_new(tiny):
    words = ["log_with=[tensorboard]", "evaluation={features: random, samples: 8}"]
    run = train_gan(tiny(*words, "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"), "test")
    train_gan(tiny(*words), "test")
    events = told(run)
    assert [event.step for event in events.Scalars("discs/FD-random")] == [6]
    assert [event.step for event in events.Scalars("checks/FD-random")] == [12]
    assert [event.step for event in events.Images("samples/01-discs")] == [6]
    assert "discs/unchanged" not in events.Tags()["scalars"]


def test_accuracies_of_a_classifier_reach_the_tracker(tiny_classes):
    run = train_classifier(tiny_classes("log_with=[tensorboard]"), "test")
    events = told(run)
    lines = [s for s in read_scores(run.folder.scores) if (s.metric, s.tested_on) == ("accuracy-CIL", run.tasks[0])]
    found = events.Scalars(f"{run.tasks[0]}/accuracy-CIL")
    assert [event.value for event in found] == pytest.approx([line.value for line in lines], rel=1e-6)
    assert len(found) == 3
    assert events.Scalars(f"{run.tasks[2]}/growth")[0].value > 0


class Recorder:
    """A tracker that notes what it is given."""

    def __init__(self, name: str) -> None:
        self.name, self.seen = name, []

    def log_images(self, values, step, **options):
        self.seen.append((values, step, options))


def test_every_tracker_gets_pictures_in_the_form_that_it_takes():
    picture = np.zeros((4, 6, 3), dtype=np.uint8)
    trackers = [Recorder(name) for name in ("tensorboard", "wandb", "aim")]
    log_pictures(SimpleNamespace(trackers=[*trackers, SimpleNamespace(name="mlflow")]), {"a": picture}, 7)
    board, wandb, aim = ((values["a"], step, options) for ((values, step, options),) in (t.seen for t in trackers))
    assert (board[0].shape, board[1:]) == ((1, 4, 6, 3), (7, {"dataformats": "NHWC"}))
    assert (len(wandb[0]), wandb[0][0].shape, wandb[1:]) == (1, (4, 6, 3), (7, {}))
    assert aim[0].shape == (4, 6, 3)


def test_scores_are_named_by_task_and_metric():
    from eftgan.scores import Score

    lines = [("birds", "cats", "FID"), ("real", "cats", "FID"), ("birds", "birds", "unchanged")]
    named = named_scores([Score("run", "eft", 0, after, on, metric, 1.5, 10) for after, on, metric in lines])
    assert named == {"cats/FID": 1.5, "cats/real-FID": 1.5}
