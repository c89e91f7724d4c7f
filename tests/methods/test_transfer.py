"""L2-transfer, less-forgetting learning and incremental moment matching against values computed by hand."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig
from eftgan.errors import UserError
from eftgan.methods import Batch, Method, Probe
from eftgan.methods.imm import Imm, sampled_losses
from eftgan.methods.l2t import L2Transfer
from eftgan.methods.lfl import Lfl, feature_distance
from eftgan.names import CLASSIFIER

WEIGHT = "body.weight"


class Three(nn.Module):
    """Three shared weights, a normalisation that is not used, and a head."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, 1, bias=False)
        self.norm = nn.BatchNorm1d(1)
        self.head = nn.Linear(1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def grown(method: Method, inputs: int = 3) -> dict[str, nn.Module]:
    networks: dict[str, nn.Module] = {CLASSIFIER: Three(inputs)}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(1, 0, heads=("head",))})
    method.grow(networks, "first", head_size=2)
    method.trainable(networks, "first")
    return networks


@torch.no_grad()
def move(networks: dict[str, nn.Module], weights: list[float], mean: float = 0.0) -> None:
    network = networks[CLASSIFIER]
    network.body.weight.copy_(torch.tensor([weights]))
    network.norm.running_mean.fill_(mean)


NO_PROBE = Probe(lambda role: iter(()))


def test_l2_transfer_pulls_every_shared_weight_alike_towards_the_last_task():
    l2t = L2Transfer(strength=3.0)
    networks = grown(l2t, inputs=2)
    weight = networks[CLASSIFIER].body.weight
    assert l2t.penalty(CLASSIFIER, networks, Batch(torch.ones(1, 2))) == 0
    for task, anchor in (("first", [9.0, 9.0]), ("second", [0.5, 1.0])):  # the latest anchor alone counts
        move(networks, anchor)
        l2t.end_task(networks, task, NO_PROBE)
    move(networks, [1.5, 0.0])
    penalty = l2t.penalty(CLASSIFIER, networks, Batch(torch.ones(1, 2)))
    assert penalty.item() == 3.0
    assert torch.autograd.grad(penalty, weight)[0].tolist() == [[3.0, -3.0]]
    assert not any("head" in name for name in l2t.memory["anchor"][CLASSIFIER])
    assert l2t.penalty_gradient(CLASSIFIER, {WEIGHT: weight.detach()})[WEIGHT].tolist() == [[3.0, -3.0]]


OLD, NEW = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 4.0], [1.0, 0.0]])


def test_the_distance_of_features_is_summed_over_features_and_averaged_over_the_batch():
    new = NEW.clone().requires_grad_()
    penalty = 2 * feature_distance(new, OLD)
    assert penalty.item() == 2.5
    assert torch.autograd.grad(penalty, new)[0].tolist() == [[0.0, 2.0], [1.0, 0.0]]


class Features(nn.Module):
    """Features are the images themselves, times a shared weight."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2, bias=False)
        self.head = nn.Linear(2, 2)
        nn.init.eye_(self.body.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def test_lfl_holds_the_features_where_the_network_put_them_that_the_task_found():
    lfl = Lfl(strength=2.0)
    networks: dict[str, nn.Module] = {CLASSIFIER: Features()}
    network = networks[CLASSIFIER]
    lfl.prepare(networks, {CLASSIFIER: AdapterConfig(1, 0, heads=("head",))})
    lfl.grow(networks, "first", head_size=2)
    assert lfl.penalty(CLASSIFIER, networks, Batch(OLD, features=NEW)) == 0
    lfl.end_task(networks, "first", NO_PROBE)
    lfl.grow(networks, "second", head_size=3)
    trained = lfl.trainable(networks, "second")[CLASSIFIER]
    with torch.no_grad():
        network.body.weight.mul_(5.0)  # the network in training moves on, the one that it is held to does not
    assert lfl.penalty(CLASSIFIER, networks, Batch(OLD, features=NEW)).item() == 2.5
    first, second = network.head.tasks.values()
    assert {*trained} == {network.body.weight, *second.parameters()}  # the earlier head is frozen
    assert not any(parameter.requires_grad for parameter in first.parameters())
    lfl.end_task(networks, "second", NO_PROBE)
    assert lfl.state_dict() == {}


def probe_with(networks: dict[str, nn.Module], fisher: list[float]) -> Probe:
    """One sample whose squared gradient by the shared weights is as given."""
    weight = networks[CLASSIFIER].body.weight
    return Probe(lambda role: iter([(torch.tensor([fisher]).sqrt() * weight).sum()]))


@pytest.mark.parametrize(
    ("alphas", "merged", "mean"),
    [
        ((), [2.0, 8.0, 3.0], 4.0),
        ((0.25, 0.75), [5.5 / 1.75, 8.0, 3.6], 5.0),
        ((1.0, 3.0), [5.5 / 1.75, 8.0, 3.6], 5.0),
    ],
)
def test_imm_merges_by_precision_and_the_next_task_goes_on_from_the_unmerged_weights(alphas, merged, mean):
    imm = Imm(alphas=(*alphas, 1.0) if alphas else ())
    networks = grown(imm)
    network = networks[CLASSIFIER]
    move(networks, [1.0, 2.0, 0.0], mean=2.0)
    imm.end_task(networks, "first", probe_with(networks, [4.0, 0.0, 1.0]))
    assert network.body.weight.tolist() == [[1.0, 2.0, 0.0]]  # the mode of one Gaussian
    imm.grow(networks, "second", head_size=2)
    move(networks, [6.0, 8.0, 4.0], mean=6.0)
    heads = [tensor.clone() for tensor in network.head.tasks.parameters()]
    imm.end_task(networks, "second", probe_with(networks, [1.0, 0.0, 3.0]))
    assert network.body.weight.tolist() == [pytest.approx(merged)]
    assert network.norm.running_mean.item() == pytest.approx(mean)
    assert all(torch.equal(*pair) for pair in zip(heads, network.head.tasks.parameters(), strict=True))
    again = Imm(alphas=imm.alphas)  # as after a stop
    again.load_state_dict({key: tensor.clone() for key, tensor in imm.state_dict().items()}, networks)
    again.grow(networks, "third", head_size=2)
    assert torch.equal(network.body.weight, torch.tensor([[6.0, 8.0, 4.0]]))
    assert torch.equal(network.norm.running_mean, torch.tensor([6.0]))
    again.trainable(networks, "third")
    assert again.penalty(CLASSIFIER, networks, Batch(torch.ones(1, 3))) == 0  # L2-transfer pulls to where it starts


def test_imm_merges_three_tasks_as_the_formula_says():
    torch.manual_seed(0)
    thetas, fishers, alphas = torch.randn(3, 3), torch.rand(3, 3), (1.0, 2.0, 0.5)
    imm = Imm(alphas=alphas)
    networks = grown(imm)
    for index, task in enumerate(("first", "second", "third")):
        if index:
            imm.grow(networks, task, head_size=2)
        move(networks, thetas[index].tolist(), mean=float(index))
        imm.end_task(networks, task, probe_with(networks, fishers[index].tolist()))
    weights = torch.tensor(alphas)[:, None] * fishers
    assert torch.allclose(networks[CLASSIFIER].body.weight[0], (weights * thetas).sum(0) / weights.sum(0), atol=1e-6)
    assert networks[CLASSIFIER].norm.running_mean.item() == pytest.approx((2.0 * 1 + 0.5 * 2) / 3.5)


def test_imm_refuses_a_task_that_has_no_alpha():
    imm = Imm(alphas=(1.0,))
    networks = grown(imm)
    with pytest.raises(UserError, match=r"method.alphas: names the weights of 1 tasks; task 'second' is one more"):
        imm.grow(networks, "second", head_size=2)


def fisher_of(labels: str, head: list[list[float]]) -> torch.Tensor:
    """The image (1, 2, 3) has the feature 14 at these weights, and its own label is 1."""
    imm, x = Imm(labels=labels), torch.tensor([[1.0, 2.0, 3.0]])
    networks = grown(imm)
    network = networks[CLASSIFIER]
    move(networks, [1.0, 2.0, 3.0])
    with torch.no_grad():
        next(network.head.tasks.parameters()).copy_(torch.tensor(head))
    own = nn.functional.cross_entropy(network(x), torch.tensor([1]))
    imm.end_task(networks, "first", Probe(lambda role: iter([own]), lambda role: iter([x])))
    return imm.memory["precision"][CLASSIFIER][WEIGHT]


def test_imm_takes_the_images_own_labels_or_draws_them_from_its_answers():
    """With logits (14, -14) the network is sure of class 0: under its own answer the gradient vanishes."""
    sure = [[1.0], [-1.0]]
    assert torch.allclose(fisher_of("own", sure), (2 * torch.tensor([[1.0, 2.0, 3.0]])) ** 2)
    assert fisher_of("sampled", sure).max() < 1e-6


def test_sampled_labels_follow_the_probabilities_and_the_seed():
    network, images = nn.Linear(1, 2, bias=False), torch.ones(2000, 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[3.0], [1.0]]).log())

    def losses(seed: int) -> list[float]:
        return [x.item() for x in sampled_losses(network, [images], torch.Generator().manual_seed(seed))]

    first = losses(1)
    assert sum(loss < 0.5 for loss in first) / 2000 == pytest.approx(0.75, abs=0.03)  # -log 3/4 against -log 1/4
    assert losses(1) == first
    assert losses(2) != first
