"""SupSup: subnetworks of random weights."""

import math

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, own_transforms, shared_state, task_state
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth_of
from eftgan.gan.kind import train_gan
from eftgan.methods.supsup import SupSup
from eftgan.models.classifiers import CLASSIFIERS
from eftgan.names import CLASSIFIER
from eftgan.tensors import read_tensors


def prepared(**keys) -> nn.Module:
    network = CLASSIFIERS["resnet8"](5)
    SupSup(**keys).prepare({CLASSIFIER: network}, {CLASSIFIER: AdapterConfig(heads=("head",))})
    return network


def test_weights_have_one_size_per_layer_and_signs_at_random():
    layers = [m for m in prepared().modules() if isinstance(m, nn.Conv2d)]
    for layer in layers:
        size = math.sqrt(2 / (layer.in_channels * layer.kernel_size[0] ** 2))
        assert torch.allclose(layer.weight.abs(), torch.full_like(layer.weight, size))
        assert 0.2 < (layer.weight > 0).float().mean() < 0.8
    assert len(layers) > 6


def test_random_weights_never_train_and_files_hold_bits_and_statistics(learn):
    learned = learn(SupSup(density=0.5), epochs=0.5)
    before, after = shared_state(learned.fresh), shared_state(learned.network)
    assert all(torch.equal(before[key], after[key]) for key in before)
    tensors, _ = read_tensors(learned.trainer.folder.task_file(0, "shapes-1"))
    weights = 3 * 16 * 9 + 16 * 32 * 9 + 512 * 32
    assert sum(t.nbytes for key, t in tensors.items() if key.endswith("bits")) == weights // 8
    rest = {key.rsplit(".", 1)[1] for key in tensors if "head" not in key and not key.endswith("bits")}
    assert rest == {"running_mean", "running_var", "num_batches_tracked"}
    for mask in own_transforms(learned.network, "shapes-3").values():
        assert mask.mask().float().mean() == pytest.approx(0.5, abs=0.01)


def test_transfer_starts_at_the_mean_of_all_earlier_scores(learn, three_tasks):
    seen = []

    class Watching(SupSup):
        def end_task(self, networks, task, probe):
            masks = self.masks(CLASSIFIER, networks[CLASSIFIER], task)
            seen.append({name: mask.scores.detach().clone() for name, mask in masks.items()})
            super().end_task(networks, task, probe)

    learned = learn(Watching(density=0.5, transfer=True), three_tasks[:2], epochs=0.3)
    learned.method.grow({CLASSIFIER: learned.network}, "third", head_size=4)
    for name, mask in own_transforms(learned.network, "third").items():
        assert torch.equal(mask.scores, (seen[0][name] + seen[1][name]) / 2)
        assert not torch.equal(seen[0][name], seen[1][name])


def test_transfer_is_resumed_and_needs_the_resume_state(learn, three_tasks):
    whole = learn(SupSup(density=0.5, transfer=True), epochs=0.3, out="whole")
    learn(SupSup(density=0.5, transfer=True), three_tasks[:2], epochs=0.3, out="parts")
    parts = learn(SupSup(density=0.5, transfer=True), epochs=0.3, out="parts")
    ours, theirs = (task_state(each.network, "shapes-3") for each in (parts, whole))
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert SupSup().files_suffice
    assert not SupSup(transfer=True).files_suffice


@pytest.mark.parametrize(("budget", "share"), [(1, 0.002), (16, 0.039), (32, 0.074)])
def test_the_share_of_the_small_resnet_that_a_budget_keeps(budget, share):
    network = CLASSIFIERS["resnet18_third"](5)
    method = SupSup(budget=budget)
    method.prepare({CLASSIFIER: network}, {CLASSIFIER: AdapterConfig(heads=("head",))})
    method.grow({CLASSIFIER: network}, "one", head_size=5)
    masks = [mask.mask() for mask in own_transforms(network, "one").values()]
    assert sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks) == pytest.approx(
        share, abs=1e-3
    )


def test_a_mask_costs_a_bit_a_weight():
    with torch.device("meta"):
        network = CLASSIFIERS["resnet18_third"](5)
    counted = growth_of(network, SupSup().banks(CLASSIFIER, AdapterConfig(heads=("head",))), (3, 32, 32))
    assert counted.adapter_parameters == 0
    assert counted.adapter_bits // 8 == pytest.approx(136_000, rel=0.01)
    assert counted.parameter_growth == pytest.approx(0.031, abs=5e-4)


def test_it_learns_with_adam(learn, three_tasks):
    learned = learn(SupSup(density=0.5), three_tasks[:1], epochs=6, rate=0.01, optimizer="adam")
    assert learned.matrix[0, 0] > 0.4


def test_a_gan_is_refused(tiny):
    with pytest.raises(UserError, match="supsup is for a classifier"):
        train_gan(tiny("method={name: supsup}"), "test")
