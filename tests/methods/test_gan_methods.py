"""The methods that serve GANs too, on the tiny GAN."""

import pytest
import torch

from eftgan.errors import UserError
from eftgan.tensors import read_tensors
from eftgan.train import train_gan

STEPS = "training.steps=3"


def test_separate_gans_equal_gans_trained_alone(tiny):
    together = train_gan(tiny(STEPS, "method={name: separate}", out="together"), "test")
    only = "tasks=[{name: checks, data: 'shapes:checks', limit: 24}]"
    alone = train_gan(tiny(STEPS, "method={name: separate}", only, out="alone"), "test")
    ours, _ = read_tensors(together.folder.task_file(1, "checks"))
    theirs, _ = read_tensors(alone.folder.task_file(0, "checks"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_ewc_holds_generator_and_discriminators(tiny):
    experiment = tiny(STEPS, "method={name: ewc, strength: 1.0, samples: 2}")
    train_gan(experiment, "test")
    importance = experiment.method.memory["importance"]
    assert set(importance) == {"generator", "discriminator32"}
    assert all(any(bool(tensor.any()) for tensor in found.values()) for found in importance.values())


@pytest.mark.parametrize("name", ["fixed", "lwf", "mas", "joint"])
def test_methods_that_need_labels_are_refused(tiny, name):
    with pytest.raises(UserError, match=f"{name} is for a classifier"):
        train_gan(tiny(f"method={{name: {name}}}"), "test")
