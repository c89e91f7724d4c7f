"""Schedules, stages and joined images, without any training."""

import pytest
import torch

from eftgan.classifier.selection import Best, Schedule, SeenImages, Stage
from eftgan.data.labelled import LabelledImages
from eftgan.methods import MethodStage, Moment


def images(count: int, first: int = 0) -> LabelledImages:
    """Pictures whose every byte is their number, labels going round 0 and 1."""
    numbers = torch.arange(first, first + count, dtype=torch.uint8)
    return LabelledImages(numbers.view(-1, 1, 1, 1).expand(-1, 3, 2, 2).clone(), torch.arange(count) % 2, 2)


def test_the_learning_rate_depends_on_the_epoch_alone():
    schedule = Schedule(250, 0.01, [100, 150, 200], 0.1)
    rates = [schedule.rate_at(epoch) for epoch in (0, 99.9, 100, 150, 249)]
    assert rates == pytest.approx([0.01, 0.01, 1e-3, 1e-4, 1e-5])


def test_stages_count_steps_and_epochs():
    stage = Stage("a", ["a"], images(50), 2, Schedule(), together=20, first=10)
    assert stage.last == 15  # 100 images in fives of 20
    assert stage.epoch(10) == 0
    assert [step for step in range(11, 16) if stage.ends_epoch(step)] == [13, 15]


def test_a_method_divides_a_stage_and_the_learning_rate_goes_on_through_the_parts():
    whole = Stage("a", ["a"], images(50), 2, Schedule(), together=20, first=10)
    assert whole.divided([MethodStage()]) == [whole]
    one, two = whole.divided([MethodStage("one", 0.4), MethodStage("two", 0.6)])
    assert [(each.name, each.begin, each.last) for each in (one, two)] == [("one", 10, 12), ("two", 12, 15)]
    assert two.epoch(12) == pytest.approx(0.8)  # of the task: what the schedule looks at
    assert one.moment(11) == Moment(1, 0.5, pytest.approx(0.4), rate=one.rate(11))
    assert two.moment(12) == Moment(0, 0.0, 0.0, rate=two.rate(12))


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.0, 0.0), (0.7, 0.7)])
def test_stages_of_a_method_must_make_up_the_whole(shares):
    whole = Stage("a", ["a"], images(50), 2, Schedule(), together=20)
    with pytest.raises(ValueError, match="add up to 1"):
        whole.divided([MethodStage(str(share), share) for share in shares])


def test_joined_images_have_joined_labels():
    seen = SeenImages([images(4), images(3, first=100)], [2, 2])
    assert len(seen) == 7
    pictures, labels = seen[[5, 1, 4]]
    assert sorted(zip(pictures[:, 0, 0, 0].tolist(), labels.tolist(), strict=True)) == [(1, 1), (100, 2), (101, 3)]


def test_held_out_images_are_a_tenth_and_not_trained_on():
    most, held = SeenImages([images(40)], [2]).divided(0.1, torch.Generator().manual_seed(0))
    assert (len(most), len(held)) == (36, 4)
    assert sorted([*most.kept.tolist(), *held.kept.tolist()]) == list(range(40))


def test_the_best_epoch_is_the_first_of_equals_and_survives_a_stop():
    best = Best()
    assert best.better(1.0, 0.5)
    best.keep({"network/w": torch.ones(2)})
    assert not best.better(2.0, 0.5)
    again = Best()
    again.load_state_dict(best.state_dict())
    assert (again.epoch, again.accuracy) == (1.0, 0.5)
    assert torch.equal(again.kept["network/w"], torch.ones(2))
