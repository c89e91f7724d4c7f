"""Importance, anchors and penalties against values computed by hand."""

import copy
import math

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig
from eftgan.errors import UserError
from eftgan.methods import Batch, Method, Probe
from eftgan.methods.ewc import Ewc
from eftgan.methods.feature_margin import FeatureMargin, gaussian, gaussian_kl
from eftgan.methods.lwf import Lwf, distillation
from eftgan.methods.mas import Mas
from eftgan.methods.rwalk import RWalk
from eftgan.methods.si import Si
from eftgan.names import CLASSIFIER

NAME = "body.weight"
X = torch.tensor([[1.0, 2.0], [3.0, -1.0]])


class Line(nn.Module):
    """One shared weight row and a head that is the number 1: output = w1 x1 + w2 x2."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 1, bias=False)
        self.head = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.body.weight[:, :1], 0.5)
        nn.init.constant_(self.body.weight[:, 1:], 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def grown(method: Method, role: str = CLASSIFIER, classes: int = 1) -> dict:
    """A network with its first task: the shared weights are (0.5, 1), the head is 1."""
    networks = {role: Line()}
    method.prepare(networks, {role: AdapterConfig(1, 0, heads=("head",))})
    method.grow(networks, "first", head_size=classes if role == CLASSIFIER else None)
    for head in networks[role].head.tasks.values():
        nn.init.ones_(head.weight)
    method.trainable(networks, "first")
    return networks


def probe_of(networks: dict, role: str = CLASSIFIER) -> Probe:
    """Two samples with the loss 1/2 output^2: its gradient is output * x."""
    network = networks[role]
    return Probe(lambda role: (0.5 * network(x[None]).square().sum() for x in X), lambda role: iter([X]))


OUTPUTS = torch.tensor([2.5, 0.5])  # of the two samples at (0.5, 1)


def test_fisher_is_the_mean_of_squared_gradients_sample_by_sample():
    ewc = Ewc(strength=3.0)
    networks = grown(ewc)
    ewc.end_task(networks, "first", probe_of(networks))
    expected = ((OUTPUTS[:, None] * X) ** 2).mean(0, keepdim=True)
    assert set(ewc.memory["importance"][CLASSIFIER]) == {NAME}  # not the head
    assert torch.allclose(ewc.memory["importance"][CLASSIFIER][NAME], expected)


def test_the_sample_limit_is_kept():
    ewc = Ewc(samples=1)
    networks = grown(ewc)
    ewc.end_task(networks, "first", probe_of(networks))
    assert torch.allclose(ewc.memory["importance"][CLASSIFIER][NAME], (2.5 * X[:1]) ** 2)


def gradient(method: Method, networks: dict) -> torch.Tensor:
    weight = networks[CLASSIFIER].body.weight
    return torch.autograd.grad(method.penalty(CLASSIFIER, networks, Batch(X)), weight)[0]


@pytest.mark.parametrize("form", ["per-task", "online"])
def test_ewc_pulls_as_equation_3_says(form):
    ewc = Ewc(strength=3.0, form=form, decay=0.5)
    networks = grown(ewc)
    ewc.end_task(networks, "first", probe_of(networks))
    first, weight = ewc.memory["importance"][CLASSIFIER][NAME].clone(), networks[CLASSIFIER].body.weight
    start = weight.detach().clone()
    assert ewc.penalty(CLASSIFIER, networks, Batch(X)) == 0
    with torch.no_grad():
        weight += 0.1
    assert ewc.penalty(CLASSIFIER, networks, Batch(X)).item() == pytest.approx(3.0 / 2 * first.sum().item() * 0.01)
    ewc.end_task(networks, "second", probe_of(networks))
    second_start = weight.detach().clone()
    outputs = (X @ second_start.T).flatten()
    second = ((outputs[:, None] * X) ** 2).mean(0, keepdim=True)
    with torch.no_grad():
        weight -= 0.3
    here = weight.detach()
    if form == "per-task":
        expected = 3.0 * (first * (here - start) + second * (here - second_start))
    else:
        expected = 3.0 * (0.5 * first + second) * (here - second_start)
    assert torch.allclose(gradient(ewc, networks), expected, atol=1e-5)


def test_ewc_protects_every_network_of_a_gan_by_its_own_loss():
    ewc = Ewc(strength=2.0)
    networks = grown(ewc, role="generator")
    ewc.end_task(networks, "first", probe_of(networks, "generator"))
    assert "head.tasks.t001.weight" in ewc.memory["importance"]["generator"]  # shared by all tasks here
    with torch.no_grad():
        networks["generator"].body.layer.weight += 1.0
    assert ewc.penalty("generator", networks, Batch(X)).item() > 0


def step(method: Method, networks: dict, loss_gradient: torch.Tensor, move: torch.Tensor) -> None:
    """One step of a made-up optimizer: the gradient of loss and penalty is there, the weight moves."""
    weight = networks[CLASSIFIER].body.weight
    penalty = method.penalty(CLASSIFIER, networks, Batch(X))
    pull = torch.autograd.grad(penalty, weight)[0] if torch.is_tensor(penalty) else 0.0
    weight.grad = loss_gradient + pull
    with torch.no_grad():
        weight += move
    method.after_step(CLASSIFIER, networks)


STEPS = [  # gradient of the task's loss, way of the weight
    (torch.tensor([[1.0, -2.0]]), torch.tensor([[-0.5, 0.25]])),
    (torch.tensor([[2.0, 1.0]]), torch.tensor([[-0.5, 0.5]])),
]


def test_si_is_the_path_integral_over_the_square_of_the_way():
    si = Si(strength=2.0, damping=0.1)
    networks = grown(si)
    for loss_gradient, move in STEPS:
        step(si, networks, loss_gradient, move)
    # omega = -(1 * -0.5 + 2 * -0.5) = 1.5 and -(-2 * 0.25 + 1 * 0.5) = 0; ways: -1 and 0.75
    assert torch.allclose(si.memory["path"][CLASSIFIER][NAME], torch.tensor([[1.5, 0.0]]))
    si.end_task(networks, "first", probe_of(networks))
    assert torch.allclose(si.memory["importance"][CLASSIFIER][NAME], torch.tensor([[1.5 / 1.1, 0.0]]))
    with torch.no_grad():
        networks[CLASSIFIER].body.weight += 0.5
    assert si.penalty(CLASSIFIER, networks, Batch(X)).item() == pytest.approx(2.0 * 1.5 / 1.1 * 0.25)


def test_si_takes_the_gradient_of_the_task_without_the_penalty():
    si = Si(strength=2.0)
    networks = grown(si)
    step(si, networks, *STEPS[0])
    si.end_task(networks, "first", probe_of(networks))
    si.grow(networks, "second", head_size=1)
    si.trainable(networks, "second")
    for loss_gradient, move in STEPS:
        step(si, networks, loss_gradient, move)
    assert torch.allclose(si.memory["path"][CLASSIFIER][NAME], torch.tensor([[1.5, 0.0]]), atol=1e-6)


def test_a_way_uphill_takes_importance_off_again_but_not_below_zero():
    si = Si(damping=0.1)
    networks = grown(si)
    for task, sign in (("first", 1.0), ("second", -1.0)):
        if task == "second":
            si.grow(networks, task, head_size=1)
            si.trainable(networks, task)
        step(si, networks, sign * torch.tensor([[1.0, 2.0]]), torch.tensor([[-0.5, -0.5 * (2 - sign)]]))
        si.end_task(networks, task, probe_of(networks))
    # first: 0.5 / 0.35 and 1 / 0.35; second: -0.5 / 0.35, and -3 / (1.5^2 + 0.1), which leaves 1 / 0.35 - 3 / 2.35
    expected = torch.tensor([[0.0, 1 / 0.35 - 3 / 2.35]])
    assert torch.allclose(si.memory["importance"][CLASSIFIER][NAME], expected, atol=1e-6)


def test_mas_is_the_mean_sensitivity_of_the_squared_output():
    mas = Mas(strength=2.0)
    networks = grown(mas)
    mas.end_task(networks, "first", probe_of(networks))
    expected = (2 * OUTPUTS[:, None] * X).abs().mean(0, keepdim=True)  # d/dw (w x)^2 = 2 (w x) x
    assert torch.allclose(mas.memory["importance"][CLASSIFIER][NAME], expected)
    with torch.no_grad():
        networks[CLASSIFIER].body.weight += 0.5
    assert mas.penalty(CLASSIFIER, networks, Batch(X)).item() == pytest.approx(2.0 * float(expected.sum()) * 0.25)
    mas.end_task(networks, "second", probe_of(networks))
    assert (mas.memory["importance"][CLASSIFIER][NAME] > expected).all()  # added up


def test_rwalk_joins_the_moving_fisher_and_the_score_of_the_walk():
    walk = RWalk(strength=1.0, alpha=0.5, every_steps=2, damping=0.1)
    networks = grown(walk)
    for loss_gradient, move in STEPS:
        step(walk, networks, loss_gradient, move)
    fisher = 0.5 * torch.tensor([[(1 + 4) / 2, (4 + 1) / 2]])  # (1.25, 1.25)
    assert torch.allclose(walk.memory["fisher"][CLASSIFIER][NAME], fisher)
    score = torch.tensor([[1.5 / (0.5 * 1.25 * 1.0 + 0.1), 0.0]])
    assert torch.allclose(walk.memory["path"][CLASSIFIER][NAME], score)
    walk.end_task(networks, "first", probe_of(networks))
    assert torch.allclose(walk.memory["importance"][CLASSIFIER][NAME], torch.tensor([[2.0, 1.0]]))


def test_the_fisher_of_rwalk_is_the_running_average_over_stretches_not_the_last_batch():
    walk = RWalk(alpha=0.9, every_steps=4)
    networks = grown(walk)
    gradients = torch.randn(10, 1, 2, generator=torch.Generator().manual_seed(0))
    gradients[3::4] *= 100  # a stretch's last batch would drown the others
    for each in gradients:
        step(walk, networks, each, torch.zeros(1, 2))
    running = torch.zeros(1, 2)
    for stretch in (gradients[:4], gradients[4:8]):
        running = 0.1 * running + 0.9 * stretch.square().mean(0)
    assert torch.allclose(walk.memory["fisher"][CLASSIFIER][NAME], running)
    walk.end_task(networks, "first", probe_of(networks))
    share = 0.9 * 2 / 4  # two steps of a stretch of four
    running = (1 - share) * running + share * gradients[8:].square().mean(0)
    assert torch.allclose(walk.memory["fisher"][CLASSIFIER][NAME], running)


@pytest.mark.parametrize("method", [Si(damping=0.1), RWalk(every_steps=3, alpha=0.5, damping=0.1)], ids=["si", "rwalk"])
def test_where_averaged_weights_end_a_task_the_path_ends_where_it_led_and_the_anchor_is_the_averaged_ones(method):
    networks = grown(method)
    for loss_gradient, move in STEPS:
        step(method, networks, loss_gradient, move)
    averaged = torch.tensor([[7.0, -7.0]])
    with torch.no_grad():
        networks[CLASSIFIER].body.weight.copy_(averaged)
    method.end_task(networks, "first", probe_of(networks))
    assert torch.equal(method.memory["anchor"][CLASSIFIER][NAME], averaged)
    if isinstance(method, Si):  # the way is -1, not 6.5
        assert torch.allclose(method.memory["importance"][CLASSIFIER][NAME], torch.tensor([[1.5 / 1.1, 0.0]]))
    else:  # F: 0.5 * 2/3 of the mean of squares, 2.5
        score = torch.tensor([[1.5 / (0.5 * 2.5 / 3 * 1.0 + 0.1), 0.0]])
        assert torch.allclose(method.memory["scores"][CLASSIFIER][NAME], score)


def test_distillation_is_the_cross_entropy_of_softened_outputs():
    new, old = torch.tensor([[0.0, 0.0]]), torch.tensor([[2 * math.log(3.0), 0.0]])
    # softened by T = 2 the old answer is (3/4, 1/4); the new one is (1/2, 1/2)
    assert float(distillation(new, old, 2.0)) == pytest.approx(math.log(2.0))
    assert float(distillation(old, old, 2.0)) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))


def test_lwf_holds_earlier_heads_to_the_answers_of_the_network_before_the_task():
    lwf = Lwf(strength=3.0)
    networks = grown(lwf, classes=2)
    network = networks[CLASSIFIER]
    with torch.no_grad():
        network.head.tasks["t001"].weight.copy_(torch.tensor([[1.0], [-1.0]]))
    assert lwf.penalty(CLASSIFIER, networks, Batch(X)) == 0
    lwf.end_task(networks, "first", probe_of(networks))
    lwf.grow(networks, "second", head_size=2)
    lwf.trainable(networks, "second")
    old = network.head.tasks["t001"](network.body(X)).detach()
    with torch.no_grad():
        network.body.weight += 0.5
        network.head.tasks["t001"].weight += 0.1
    features = network.body(X)
    new = network.head.tasks["t001"](features)
    penalty = lwf.penalty(CLASSIFIER, networks, Batch(X, features=features))
    assert torch.allclose(penalty, 3.0 * distillation(new, old, 2.0))
    assert all(p.requires_grad for p in network.head.tasks.parameters())  # old heads train as well


def test_gaussian_kl_by_hand():
    p = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 4.0])
    q = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 1.0])
    first = 0.5 * (1 / 2 + 1 / 2 - 1 + math.log(2))
    second = 0.5 * (4 - 1 - math.log(4))
    assert float(gaussian_kl(p, q)) == pytest.approx(first + second)
    assert float(gaussian_kl(p, q, "mean")) == pytest.approx((first + second) / 2)
    assert float(gaussian_kl(p, p)) == 0
    assert torch.equal(gaussian(torch.ones(3, 2))[1], torch.full((2,), 1e-4))


@pytest.mark.parametrize(("distance", "active"), [(0.5, 0.5), (3.0, 0.0)])
def test_the_margin_is_a_hinge(monkeypatch, distance, active):
    margin = FeatureMargin(strength=2.0)
    monkeypatch.setattr(margin, "_distance", lambda *given: torch.tensor(distance))
    assert float(margin.loss(nn.Identity(), ["a", "b"], X, X)) == 2.0 * 2 * active
    assert margin.active_share == float(active > 0)


def test_the_margin_of_the_notebooks(monkeypatch):
    margin = FeatureMargin(form="l2", strength=1.0)
    monkeypatch.setattr("eftgan.methods.feature_margin.features_under", lambda *given: X - 32.0)
    expected = 1 - 64.0 / 128  # the Frobenius norm of four differences of 32
    assert float(margin.loss(nn.Identity(), ["a", "b"], X, X)) == pytest.approx(expected)
    with pytest.raises(UserError, match="needs statistics: live"):
        FeatureMargin(form="l2", statistics="stored")


def test_a_resumed_regulariser_has_the_same_memory():
    ewc = Ewc()
    networks = grown(ewc)
    ewc.end_task(networks, "first", probe_of(networks))
    again = Ewc()
    again.load_state_dict(copy.deepcopy(ewc.state_dict()), networks)
    with torch.no_grad():
        networks[CLASSIFIER].body.weight += 0.1
    batch = Batch(X)
    assert torch.equal(ewc.penalty(CLASSIFIER, networks, batch), again.penalty(CLASSIFIER, networks, batch))
