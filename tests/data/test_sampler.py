"""Batches are a function of (seed, task, step) alone."""

import itertools
import random

import pytest

from eftgan.data.sampler import StepBatches
from eftgan.data.streams import stream_seed
from eftgan.errors import UserError


def batches(start=0, steps=20, **options):
    return list(StepBatches(23, 5, **{"seed": 1, "task": "cats"} | options, start_step=start, steps=steps))


def test_resuming_anywhere_equals_never_having_stopped():
    whole = batches()
    for start in range(20):
        assert batches(start, 20 - start) == whole[start:]


def test_every_epoch_holds_every_image_once():
    indices = list(itertools.chain.from_iterable(batches(steps=23)))  # 115 = 5 epochs of 23
    epochs = [indices[i : i + 23] for i in range(0, 115, 23)]
    assert all(sorted(epoch) == list(range(23)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5


def test_ranks_share_a_step_without_overlap():
    single = list(StepBatches(40, 8, seed=0, task="t", steps=5))
    parts = [list(StepBatches(40, 4, seed=0, task="t", steps=5, rank=r, world=2)) for r in (0, 1)]
    assert [a + b for a, b in zip(*parts, strict=True)] == single


def test_seed_and_task_change_the_order_and_global_random_state_does_not():
    reference = batches()
    random.seed(5)
    assert batches() == reference
    assert batches(seed=2) != reference
    assert batches(task="birds") != reference


def test_a_batch_larger_than_the_set_wraps():
    (first,) = StepBatches(3, 8, seed=0, task="t", steps=1)
    assert len(first) == 8
    assert sorted(first[:3]) == sorted(first[3:6]) == [0, 1, 2]


def test_an_empty_set_is_refused():
    with pytest.raises(UserError, match="birds"):
        StepBatches(0, 4, seed=0, task="birds")


def test_stream_seeds_never_change_and_tell_parts_apart():
    assert stream_seed(3, "cats", "noise") == 4990621501022255097
    assert stream_seed("a", "bc") != stream_seed("ab", "c")
    assert stream_seed(1) != stream_seed("1")
