"""APD against values computed by hand, and what it promises: sparse own parts, and earlier tasks that hardly move."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, named_banks
from eftgan.adapters.transforms.decomposed import Decomposed
from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.classifier.kind import train_classifier
from eftgan.config import load
from eftgan.evaluation.accuracy import forgetting
from eftgan.evaluation.growth import growth
from eftgan.files import file_digest
from eftgan.methods import Batch, Finetune, Probe
from eftgan.methods.apd import Apd, decomposed, hold
from eftgan.methods.consolidation import k_means
from eftgan.names import CLASSIFIER
from eftgan.tensors import tensors_digest
from eftgan.training.stopping import Stopped, StopSignal

from ..conftest import ROOT

NO_PROBE = Probe(lambda role: iter(()))


def grown(two_layers, method: Apd, *tasks: str) -> dict[str, nn.Module]:
    networks = {CLASSIFIER: two_layers()}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=("head",))})
    for task in tasks:
        method.grow(networks, task, head_size=2)
        method.trainable(networks, task)
    return networks


@torch.no_grad()
def set_by_hand(networks: dict[str, nn.Module]) -> None:
    """sigma, sigmoid(v) = (1/2, 1) and tau of the first task: outputs as rows."""
    network = networks[CLASSIFIER]
    network.body.layer.weight.copy_(torch.tensor([[2.0, 4.0], [-1.0, 0.5]]))
    own = network.body.tasks["t001"]
    own.v.copy_(torch.tensor([0.0, 40.0]))
    own.tau.copy_(torch.tensor([[0.5, 0.0], [0.0, -1.0]]))


def test_a_task_computes_with_the_masked_shared_weight_and_its_own_part(two_layers):
    networks = grown(two_layers, Apd(), "first")
    set_by_hand(networks)
    ((_, sigma, own),) = decomposed(networks[CLASSIFIER], "first")
    assert own.weight(sigma).tolist() == [[1.5, 2.0], [-1.0, -0.5]]


def test_earlier_tasks_are_held_where_they_were_when_the_new_one_began(two_layers):
    method = Apd(l1=0.0, l2=100.0)
    networks = grown(two_layers, method, "first")
    set_by_hand(networks)
    method.grow(networks, "second", head_size=2)
    method.trainable(networks, "second")
    assert method.penalty(CLASSIFIER, networks, Batch(torch.ones(1, 2))).item() == 0
    with torch.no_grad():
        networks[CLASSIFIER].body.layer.weight.add_(0.1)
    assert method.penalty(CLASSIFIER, networks, Batch(torch.ones(1, 2))).item() == pytest.approx(1.25, abs=1e-5)


def test_terms_of_an_earlier_task_have_the_gradients_of_their_formula():
    torch.manual_seed(0)
    for layer in (nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3), nn.Linear(3, 4)):
        own, target = Decomposed(layer), torch.randn_like(layer.weight)
        own.reset_parameters()
        own.give_common(torch.randn_like(target), own.tau.detach().clone(), first=True)
        own.v.requires_grad_(False)
        moved = own.weight(layer.weight) - target
        formula = 0.3 * own.tau.abs().sum() + 7 / 2 * moved.square().sum()
        written_out = hold(layer.weight, own, target, 0.3, 7)
        torch.testing.assert_close(written_out, formula)
        for ours, autograds in zip(
            torch.autograd.grad(2 * written_out, (layer.weight, own.tau)),
            torch.autograd.grad(2 * formula, (layer.weight, own.tau)),
            strict=True,
        ):
            torch.testing.assert_close(ours, autograds)


def test_own_parts_cost_by_their_size_and_small_entries_are_dropped_when_a_task_ends(two_layers):
    method = Apd(l1=0.6, l2=0.0)
    networks = grown(two_layers, method, "first")
    set_by_hand(networks)
    assert method.penalty(CLASSIFIER, networks, Batch(torch.ones(1, 2))).item() == pytest.approx(0.6 * 1.5)
    assert method.figures() == {"own-weights": 0.25}
    method.end_task(networks, "first", NO_PROBE)
    (own,) = networks[CLASSIFIER].body.tasks.values()
    assert own.tau.tolist() == [[0.0, 0.0], [0.0, -1.0]]
    assert own.kept_parameters() == 1 + 2  # one entry, a mask of two outputs


def test_small_entries_are_back_when_the_next_task_begins_also_from_a_state(two_layers):
    method = Apd(l1=0.6, l2=100.0)
    networks = grown(two_layers, method, "first")
    set_by_hand(networks)
    ((name, sigma, own),) = decomposed(networks[CLASSIFIER], "first")
    trained, theta = own.tau.tolist(), own.weight(sigma)
    method.end_task(networks, "first", NO_PROBE)
    assert own.tau.tolist() != trained
    resumed = Apd(l1=0.6, l2=100.0)
    resumed.load_state_dict(method.state_dict(), networks)
    resumed.grow(networks, "second", head_size=2)
    assert own.tau.tolist() == trained
    assert torch.equal(resumed.targets["first"][name], theta)
    assert list(resumed.state_dict()) == [f"first/{name}"]  # while a task trains, there are targets alone


def test_an_earlier_task_is_held_though_sigma_drifts_by_less_than_what_is_left_out(two_layers):
    method = Apd(l1=0.01)
    networks = grown(two_layers, method, "first")
    set_by_hand(networks)
    ((name, sigma, own),) = decomposed(networks[CLASSIFIER], "first")
    theta = own.weight(sigma)
    for task in range(2, 12):
        method.end_task(networks, f"task-{task - 1}", NO_PROBE)
        method.grow(networks, f"task-{task}", head_size=2)
        method.trainable(networks, f"task-{task}")
        with torch.no_grad():  # tau makes up for it, as the last term asks for
            sigma.add_(0.005)
            own.tau.add_(method.targets["first"][name] - own.weight(sigma))
    assert (own.weight(sigma) - theta).abs().max() < 1e-5
    method.end_task(networks, "task-11", NO_PROBE)
    assert (own.weight(sigma) - theta).abs().max() <= 0.01 + 1e-5


def test_the_authors_start_is_one_and_a_half_times_the_shared_weight(two_layers):
    networks = grown(two_layers, Apd(start="authors"), "first")
    ((_, sigma, own),) = decomposed(networks[CLASSIFIER], "first")
    assert torch.allclose(own.weight(sigma), 1.5 * sigma, rtol=0.02)
    assert torch.equal(own.tau, sigma)


def test_sigma_and_all_own_parts_train_but_masks_of_earlier_tasks_do_not(two_layers):
    method = Apd()
    networks = grown(two_layers, method, "first", "second")
    trained = set(method.trainable(networks, "second")[CLASSIFIER])
    (_, sigma, first), (_, _, second) = (next(decomposed(networks[CLASSIFIER], t)) for t in ("first", "second"))
    assert {sigma, first.tau, second.tau, second.v} <= trained
    assert not {first.v, *networks[CLASSIFIER].head.tasks["t001"].parameters()} & trained
    own, held = method.groups(CLASSIFIER, list(trained))
    assert (own.decay, held.decay) == (None, 0.0)
    assert set(held.parameters) == {sigma, first.tau}


@pytest.mark.slow
def test_earlier_tasks_hardly_move_and_own_parts_become_sparse(learn):
    options = {"epochs": 10, "rate": 0.03, "norm": False}
    lost = forgetting(learn(Finetune(), out="finetune", **options).matrix, 2)
    learned = learn(Apd(l1=1e-3, l2=20.0), out="apd", **options)
    assert lost > 0.1
    assert forgetting(learned.matrix, 2) < 0.02
    grows = growth(learned.network, torch.zeros(1, 3, 16, 16), "shapes-3")
    whole = sum(bank.layer.weight.numel() for _, bank in named_banks(learned.network) if bank.part == "transforms")
    assert grows.adapter_parameters < 0.7 * whole
    assert learned.trainer.records["shapes-3"]["own-weights"] < 3 * 0.7


def test_a_run_that_is_given_a_further_task_ends_like_one_that_had_it_from_the_start(learn, three_tasks):
    whole = learn(Apd(l1=0.01), epochs=0.3, out="whole")
    learn(Apd(l1=0.01), three_tasks[:2], epochs=0.3, out="parts")
    parts = learn(Apd(l1=0.01), epochs=0.3, out="parts")
    assert tensors_digest(parts.network.state_dict()) == tensors_digest(whole.network.state_dict())
    assert tensors_digest(parts.method.state_dict()) == tensors_digest(whole.method.state_dict())


def test_a_run_that_begins_with_anothers_first_task_ends_like_one_that_trained_it(tiny_classes):
    apd = ("method={name: apd, l1: 0.02}", "sources.0.take=2")
    first = train_classifier(tiny_classes(*apd, "sources.0.take=1", out="first"), "test")
    taken = train_classifier(tiny_classes(*apd, f"start={first.folder.path}", out="taken"), "test")
    alone = train_classifier(tiny_classes(*apd, out="alone"), "test")
    ours, its = ([file_digest(path) for path in run.folder.task_files()] for run in (taken, alone))
    assert len(ours) == 2
    assert ours == its


@pytest.mark.parametrize("sequence", ["lenet_apd", "svhn_cifar10_cifar100", "cifar100_cifar10_svhn"])
def test_recipes_train_with_the_optimizer_of_the_authors(sequence):
    training = load(ClassifierExperiment, ROOT / "configs" / "classifier" / sequence / "apd.yaml").training
    assert training.optimizer == "adam"
    for schedule in (training.first, training.later or training.first):
        assert (schedule.learning_rate, schedule.weight_decay) == (1e-3, 1e-4)


def test_points_are_grouped_with_those_they_are_near_to():
    points = torch.tensor([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [5.0, 5.2], [0.0, 0.2]])
    assert k_means(points, 2).tolist() == [0, 0, 1, 1, 0]
    assert k_means(points[:1], 4).tolist() == [0]


def test_what_tasks_of_a_group_have_in_common_is_kept_and_counted_once(two_layers):
    method = Apd(l1=0.0, consolidate_every=2, groups_each=1)
    networks = grown(two_layers, method, "first", "second")
    first, second = networks[CLASSIFIER].body.tasks.values()
    with torch.no_grad():
        first.tau.copy_(torch.tensor([[0.5, 1.0], [0.0, 0.004]]))
        second.tau.copy_(torch.tensor([[0.508, 2.0], [0.0, 0.0]]))
    ((_, sigma, _),) = decomposed(networks[CLASSIFIER], "first")
    before = second.weight(sigma)
    method.end_task(networks, "second", NO_PROBE)
    for own, alone in ((first, 1.0), (second, 2.0)):
        assert own.common.flatten().tolist() == pytest.approx([0.504, 0.0, 0.0, 0.002])
        assert own.tau.tolist() == [[0.0, alone], [0.0, 0.0]]
    assert (first.kept_parameters(), second.kept_parameters()) == (2 + 1 + 2, 2 + 1)
    assert (second.weight(sigma) - before).abs().max() <= 0.005
    fresh = grown(two_layers, Apd(), "first", "second")[CLASSIFIER]
    fresh.load_state_dict(networks[CLASSIFIER].state_dict())
    assert torch.equal(fresh.body.tasks["t002"].weight(sigma), second.weight(sigma))
    first.take_back_common()
    assert first.tau.flatten().tolist() == pytest.approx([0.504, 1.0, 0.0, 0.002])
    assert first.common is None


def test_the_hierarchical_form_trains_on_and_resumes(learn, monkeypatch):
    def run(out):
        return learn(Apd(consolidate_every=2, groups_each=1), epochs=0.3, out=out)

    whole = run("whole")
    calls = iter(range(1, 1000))
    monkeypatch.setattr(StopSignal, "requested", lambda self: next(calls) == 17)
    with pytest.raises(Stopped, match="'shapes-3' at step"):
        run("parts")
    monkeypatch.undo()
    ours, its = run("parts").network.state_dict(), whole.network.state_dict()
    assert any(key.endswith(".common") for key in its)
    assert [key for key in its if not torch.equal(ours[key], its[key])] == []
