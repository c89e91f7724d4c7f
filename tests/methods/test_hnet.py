"""HNet: a hypernetwork writes the weights, and its drift for earlier tasks is held."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from eftgan.adapters import AdapterConfig, Together, merge_task, named_banks, own_transforms, select_task, using_task
from eftgan.adapters.hypernetwork import Hypernetwork, hypernetwork_of, written_weights
from eftgan.data.pixels import Pixels
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth
from eftgan.evaluation.task_inference import logits_by_task
from eftgan.gan.kind import train_gan
from eftgan.methods.hnet import Hnet, drift
from eftgan.models.classifiers import CLASSIFIERS
from eftgan.names import CLASSIFIER
from eftgan.training.checkpoint import read_task


def prepared(network: nn.Module, method: Hnet | None = None, **adapters) -> nn.Module:
    (method or Hnet()).prepare({CLASSIFIER: network}, {CLASSIFIER: AdapterConfig(heads=("head",), **adapters)})
    return network


class Two(nn.Module):
    """Inputs (B, 2) -> a layer of six weights -> a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def test_drift_by_hand():
    """h = theta e: two earlier tasks with e = 2 and -1, theta* = 3."""
    theta, embeddings = torch.tensor(3.5, requires_grad=True), torch.tensor([2.0, -1.0])
    targets = list(3 * embeddings)
    assert torch.stack(targets).tolist() == [6.0, -3.0]
    moved = drift(list(theta * embeddings), targets)
    moved.backward()
    assert moved.item() == (1 + 0.25) / 2
    assert theta.grad.item() == 2.5
    there = torch.tensor(3.0, requires_grad=True)
    still = drift(list(there * embeddings), targets)
    still.backward()
    assert (still.item(), there.grad.item()) == (0.0, 0.0)


def test_weights_by_hand():
    """One embedding of size 1, one hidden unit, chunks of 4: six weights take two chunks, of the last a half."""
    method, network = Hnet(embedding=1, hidden=1, chunk=4), Two()
    prepared(network, method)
    method.grow({CLASSIFIER: network}, "first", head_size=2)
    written, hypernetwork = own_transforms(network, "first")["body"], hypernetwork_of(network)
    before = network.body.layer.weight.detach().clone()
    assert hypernetwork.chunks.shape == (2, 1)
    assert torch.equal(written.weight(before), before)  # h starts at 0
    with torch.no_grad():
        written.e.fill_(0.5)
        hypernetwork.chunks.copy_(torch.tensor([[1.0], [-2.0]]))
        hypernetwork.inner.weight.copy_(torch.tensor([[2.0, 1.0]]))  # of the task, of the chunk
        hypernetwork.inner.bias.zero_()
        hypernetwork.outer.weight.copy_(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
        hypernetwork.outer.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0]))
        first, second = math.tanh(2 * 0.5 + 1), math.tanh(2 * 0.5 - 2)
        expected = [first, 2 * first, 3 * first, 4 * first + 1, second, 2 * second]
        assert torch.allclose(written_weights(network, "first"), torch.tensor(expected))
        written.own_bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
        x = torch.tensor([[1.0, -1.0]])
        by_hand = x @ (before + torch.tensor(expected).view(3, 2)).T + network.body.layer.bias + written.own_bias
        assert torch.allclose(network.body(x), by_hand)


def test_what_trains_is_the_hypernetwork_and_what_the_task_owns(learn):
    learned = learn(Hnet(), epochs=0.1)
    network, method = learned.network, learned.method
    trained = method.trainable({CLASSIFIER: network}, "shapes-3")[CLASSIFIER]
    own = {p for _, bank in named_banks(network) for p in bank.task(bank.registry.row("shapes-3")).parameters()}
    assert set(trained) == own | set(hypernetwork_of(network).parameters())
    writing = method.groups(CLASSIFIER, trained)[1]
    embeddings = {each.e for each in own_transforms(network, "shapes-3").values()}
    assert set(writing.parameters) == embeddings | set(hypernetwork_of(network).parameters())
    assert writing.decay == 0.0
    built = {key: tensor for key, tensor in learned.fresh.state_dict().items() if ".layer." in key}
    assert all(torch.equal(network.state_dict()[key], tensor) for key, tensor in built.items())


def moved(learn, three_tasks, strength: float) -> tuple[float, float]:
    """How far the first task's logits and written weights move while the second is learned."""
    written = []

    class Watching(Hnet):
        def end_task(self, networks, task, probe):
            super().end_task(networks, task, probe)
            written.append(written_weights(networks[CLASSIFIER], "shapes-1").detach().clone())

    options = {"epochs": 2, "rate": 0.003, "optimizer": "adam", "norm": False, "out": f"with-{strength}"}
    learned = learn(Watching(strength=strength), three_tasks[:2], **options)
    first, second = (each["shapes-1"] for each in learned.logits)
    return float((second - first).abs().mean()), float((written[1] - written[0]).square().sum())


def test_a_great_strength_holds_what_is_written_for_earlier_tasks(learn, three_tasks):
    free, held = (moved(learn, three_tasks, strength) for strength in (0.0, 1000.0))
    assert held[0] < 0.5 * free[0]
    assert held[1] < 0.1 * free[1]


def test_files_hold_the_whole_network_and_give_every_state_back(learn, three_tasks):
    learned = learn(Hnet(), epochs=0.3)
    for after, seen in enumerate(learned.logits):
        network = copy.deepcopy(learned.fresh)
        read_task(learned.trainer.folder, after, three_tasks[after].name, CLASSIFIER, network, learned.method)
        for task in three_tasks[: after + 1]:
            images = Pixels()(task.test.images)
            (answer,) = logits_by_task(network.eval(), [task.name], lambda images=images: [images])
            assert torch.equal(answer, seen[task.name])
    assert learned.method.snapshot({CLASSIFIER: learned.network}, "shapes-1") is None


def test_targets_are_those_of_the_hypernetwork_as_the_task_found_it(learn, three_tasks, tmp_path):
    learned = learn(Hnet(), three_tasks[:1], epochs=0.3)
    networks = {CLASSIFIER: learned.network}
    before = written_weights(learned.network, "shapes-1").detach().clone()
    method = Hnet()
    method.grow(networks, "more", head_size=4)
    with torch.no_grad():
        hypernetwork_of(learned.network).outer.bias.add_(1.0)
    again = Hnet()
    again.load_state_dict(method.state_dict(), networks)
    for each in (method, again):
        each.trainable(networks, "more")
        penalty = each.penalty(CLASSIFIER, networks, None)
        assert penalty.item() == pytest.approx(0.05 * len(before) / 64, rel=1e-4)
    method.end_task(networks, "more", None)
    assert method.state_dict() == {}
    assert method.penalty(CLASSIFIER, networks, None) == 0.0


def test_merged_tasks_have_no_hypernetwork_and_answer_alike(learn, three_tasks):
    network = learn(Hnet(), epochs=0.5).network.eval().requires_grad_(False)
    x, names = Pixels()(three_tasks[0].test.images[:8]), [task.name for task in three_tasks]
    together = Together(network, names)
    answers = together(x)
    for name, answer in zip(names, answers, strict=True):
        with using_task(network, name):
            alone = network(x)
        merged = merge_task(network, name)
        assert torch.allclose(merged(x), alone, atol=1e-4)
        assert torch.allclose(answer, alone, atol=1e-4)
        assert not any(isinstance(module, Hypernetwork) for each in (merged, together) for module in each.modules())
    select_task(network, tuple(names))
    assert torch.allclose(network(x.repeat(3, 1, 1, 1)), torch.cat(answers), atol=1e-4)


def test_the_hypernetwork_is_about_as_large_as_the_network_and_a_task_adds_embeddings():
    plain = CLASSIFIERS["resnet18_third"](5)
    size = sum(p.numel() for p in plain.parameters())
    network = prepared(CLASSIFIERS["resnet18_third"](5))
    hypernetwork = hypernetwork_of(network)
    written = sum(hypernetwork.sizes)
    assert 0.98 * size < written < size
    assert 0.98 < sum(p.numel() for p in hypernetwork.parameters()) / written < 1.02
    found = growth(network, (3, 32, 32))
    layers = [bank for _, bank in named_banks(network) if bank.part == "transforms"]
    assert found.adapter_parameters == 32 * len(layers)
    assert found.base_parameters == size + sum(p.numel() for p in hypernetwork.parameters())
    assert found.flops_executed > found.flops_base + 2 * 64 * written  # every forward writes all weights


def test_what_cannot_be_written_is_refused(tiny):
    with pytest.raises(UserError, match=r"hnet cannot write the classifier's body\.weight"):
        prepared(Two(), exclude=("body",))
    odd = Two()
    odd.body = weight_norm(odd.body)
    with pytest.raises(UserError, match="hnet cannot write the classifier's body"):
        prepared(odd)
    with pytest.raises(UserError, match=r"method\.name: hnet is for a classifier, not for a gan"):
        train_gan(tiny("method={name: hnet}"), "test")
