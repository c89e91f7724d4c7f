"""EWC + SDC: drift and nearest means by hand, and means that follow the features through later tasks."""

import pytest
import torch
from torch import nn

from eftgan.data.pixels import Pixels
from eftgan.methods.ewc_sdc import EwcSdc, drift, write_means
from eftgan.methods.heads import features_of, head_of


def test_a_mean_moves_by_the_drift_of_the_images_near_it():
    old, new = torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 1.0], [3.0, 4.0]])
    moved = drift(old, new, torch.zeros(1, 2), torch.tensor([1.5]))  # weights 1 and e^-2: 0.8808 and 0.1192
    assert moved.tolist() == [pytest.approx([0.0, 1.3576], abs=1e-4)]


def test_a_mean_far_from_all_images_moves_with_the_nearest():
    old, new = torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 1.0], [3.0, 4.0]])
    assert drift(old, new, torch.full((1, 2), 1e4), torch.tensor([0.1])).tolist() == [[0.0, 4.0]]


def test_the_largest_logit_is_the_nearest_mean():
    head = nn.Linear(2, 2)
    write_means(head, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    assert head(torch.tensor([0.5, 0.9])).tolist() == pytest.approx([0.0, -0.4], abs=1e-6)


def distance_of_means(learned, task) -> float:
    """Between the means that the method has of a task's classes and where they really are now."""
    network, images = learned.network.eval(), task.train
    features = features_of(network, Pixels()(images.images))
    true = torch.stack([features[images.targets == label].mean(0) for label in range(len(task.classes))])
    return (learned.method.means[task.name] - true).norm(dim=1).mean().item()


def test_compensated_means_are_nearer_to_the_features_of_earlier_classes(learn, three_tasks):
    def learned(compensate):
        method = EwcSdc(strength=1.0, samples=16, sigma=0.5, compensate=compensate)
        return learn(method, epochs=2, norm=False, rate=0.03, out=f"compensate-{compensate}")

    with_drift, without = learned(True), learned(False)
    assert torch.equal(with_drift.logits[0]["shapes-1"], without.logits[0]["shapes-1"])  # nothing to compensate yet
    first = three_tasks[0]
    assert distance_of_means(with_drift, first) < 0.9 * distance_of_means(without, first)
    head = head_of(with_drift.network, first.name)
    assert torch.equal(head.weight, 2 * with_drift.method.means[first.name])
