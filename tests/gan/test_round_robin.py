"""Batches of several tasks in turn."""

import pytest
import torch
from torch.utils.data import DataLoader

from eftgan.data.sampler import StepBatches
from eftgan.data.shapes import ShapeImages
from eftgan.gan.round_robin import RoundRobinBatches

IMAGES = {"a": ShapeImages("discs", 9, 8), "b": ShapeImages("stripes", 7, 8), "c": ShapeImages("checks", 5, 8)}


def test_a_batch_is_known_by_its_number():
    turns = RoundRobinBatches(IMAGES, 4, seed=3)
    for number in (7, 0, 5, 100):
        task, images = turns[number]
        name = list(IMAGES)[number % 3]
        order = StepBatches(len(IMAGES[name]), 4, seed=3, task=name).at(number // 3)
        assert task == name
        assert torch.equal(images, IMAGES[name].images[order])


def test_a_task_alone_has_every_turn():
    turns = RoundRobinBatches({"b": IMAGES["b"]}, 2, seed=0, rank=1, world=2)
    order = StepBatches(7, 2, seed=0, task="b", rank=1, world=2)
    loader = DataLoader(turns, sampler=range(3, 9), batch_size=None)
    for step, (task, images) in enumerate(loader, 3):
        assert task == "b"
        assert torch.equal(images, IMAGES["b"].images[order.at(step)])


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_processes_change_nothing(workers):
    loader = DataLoader(RoundRobinBatches(IMAGES, 4, seed=0), sampler=range(6), batch_size=None, num_workers=workers)
    for number, (task, batch) in enumerate(loader):
        order = StepBatches(len(IMAGES[task]), 4, seed=0, task=task).at(number // 3)
        assert torch.equal(batch, IMAGES[task].images[order])
