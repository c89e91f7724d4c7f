"""HAT and TFM: units that tasks learn or are given, in hand-computed cases, across stops, and in files."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, Together, select_task, task_names
from eftgan.adapters.gates import UnitGate
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth
from eftgan.methods import METHODS, Moment
from eftgan.methods.gated_units import gates_of, open_units
from eftgan.methods.hat import Hat, annealed, new_units
from eftgan.methods.tfm import Tfm
from eftgan.names import CLASSIFIER
from eftgan.scores import read_scores
from eftgan.tensors import read_tensors, tensors_digest
from eftgan.training.checkpoint import read_shared, read_task

from .conftest import PIXELS, Tiny
from .test_hooks import digests, in_two_parts

MAKE = {"hat": Hat, "tfm": lambda: Tfm(tasks=3)}
ROUGH = {"momentum": 0.9, "decay": 0.01}  # what would move held weights without a gradient
each_method = pytest.mark.parametrize("name", MAKE)


class Three(nn.Module):
    """Inputs (B, 3) -> three features -> three features -> a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


def prepared(method, network: nn.Module) -> dict[str, nn.Module]:
    networks = {CLASSIFIER: network}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=("head",))})
    return networks


# HAT


def test_the_steepness_rises_in_every_epoch():
    for epoch in (0, 1, 2):
        moments = [Moment(5 * epoch + b, 0.0, epoch + b / 5) for b in range(5)]
        found = [annealed(moment, 400.0) for moment in moments]
        assert found == pytest.approx([0.0025, 100.0019, 200.0013, 300.0006, 400.0], abs=1e-4)


@pytest.mark.parametrize("s", [0.0025, 2.0, 10.0])
def test_the_gradient_of_an_embedding_is_the_same_at_every_steepness(s):
    gate = UnitGate(2, 0)
    gate.begin()
    gate.scale, gate.scale_max = s, 400.0
    with torch.no_grad():
        gate.e.copy_(torch.tensor([0.5, -0.2]))
    gate(torch.ones(1, 2)).sum().backward()
    slope = torch.sigmoid(gate.e.detach()) * torch.sigmoid(-gate.e.detach())
    assert torch.allclose(gate.e.grad, 400.0 * slope, rtol=1e-3)
    assert gate.e.grad[0].item() == pytest.approx(94.0015, rel=1e-3)


def test_a_factor_too_small_to_matter_is_zero_and_its_embedding_learns_all_the_same():
    """Else a CPU computes with denormal numbers, which took five times as long."""
    gate = UnitGate(2, 0)
    gate.begin()
    gate.scale, gate.scale_max = 100.0, 400.0
    with torch.no_grad():
        gate.e.copy_(torch.tensor([-0.4, 0.4]))  # sigmoid(-40) = 4e-18
    x = torch.ones(1, 2, requires_grad=True)
    y = gate(x)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [[0.0, 1.0]]
    assert gate.e.grad[0].item() == pytest.approx(400 * 0.2402608, rel=1e-3)  # smax sigmoid'(e), as at every steepness


def test_the_factor_of_the_gradient_by_hand():
    gate = UnitGate(1, 0)
    gate.begin()
    gate.scale, gate.scale_max = 2.0, 400.0
    with torch.no_grad():
        gate.e.fill_(0.5)
    assert gate._compensation().item() == pytest.approx(239.0534, rel=1e-5)


def test_the_penalty_counts_new_units_alone():
    factors = torch.tensor([0.9, 0.2])
    assert new_units(factors, torch.tensor([False, True])).item() == pytest.approx(0.2)
    assert new_units(factors, torch.tensor([True, True])).item() == pytest.approx(0.55)
    assert new_units(factors, torch.tensor([False, False])).item() == 0.0


def test_weights_between_units_in_use_are_held():
    method = Hat()
    networks = prepared(method, Three())
    network = networks[CLASSIFIER]
    method.grow(networks, "first", head_size=2)
    for gate in gates_of(network, "first").values():
        gate.take(torch.tensor([True, False, False]))
    method.grow(networks, "second", head_size=2)
    free = method.writable(CLASSIFIER, network, "second")
    assert free["second.layer.weight"].tolist() == [[False, True, True], [True, True, True], [True, True, True]]
    assert free["second.layer.bias"].tolist() == [False, True, True]
    assert free["first.layer.weight"].tolist() == [[False] * 3, [True] * 3, [True] * 3]  # the inputs have no gates


def test_gates_are_hard_after_a_task_and_agree_with_the_steepest_of_training():
    gate = UnitGate(4, 0).train()
    gate.begin()
    gate.scale = 400.0
    with torch.no_grad():
        gate.e.copy_(torch.tensor([0.2, -0.3, 1.0, -6.0]))
    x = torch.randn(5, 4)
    steep = gate(x)
    hard = gate.eval()(x)
    assert torch.allclose(steep, hard, atol=1e-5)
    gate.finish()
    assert (gate.e, gate.bits.tolist()) == (None, [0b0101])
    assert torch.equal(gate(x), hard)


def test_embeddings_have_no_momentum_or_decay_and_stay_within_their_limit(learn, three_tasks):
    learned = learn(Hat(), three_tasks[:1], epochs=0.2, rate=0.5, **ROUGH)
    method, networks = learned.method, {CLASSIFIER: learned.network}
    method.grow(networks, "next", head_size=4)
    others, own = method.groups(CLASSIFIER, method.trainable(networks, "next")[CLASSIFIER])
    assert (own.momentum, own.decay) == (0.0, 0.0)
    assert sum(e.numel() for e in own.parameters) == 16 + 32 + 32
    assert others.momentum is None
    with torch.no_grad():
        own.parameters[0].mul_(100)
    method.after_step(CLASSIFIER, networks)
    assert max(float(e.detach().abs().max()) for e in own.parameters) == 6.0


@pytest.mark.slow
def test_the_penalty_leaves_units_free(learn):
    used = {}
    for strength in (0.0, 5.0):
        learned = learn(Hat(strength=strength), epochs=1, out=f"c{strength}")
        used[strength] = [record["used-units"] for record in learned.trainer.records.values()]
        assert used[strength] == sorted(used[strength])
    assert used[5.0][0] < used[0.0][0]
    assert used[5.0][-1] < 1


# TFM


def test_features_are_dealt_out_in_slices():
    method = Tfm(first=0.5, tasks=3)
    assert [method.slice_end(16, task) for task in range(3)] == [8, 12, 16]
    assert [method.slice_end(3, task) for task in range(3)] == [1, 2, 3]  # at least one each
    assert [Tfm(first=1.0, tasks=3).slice_end(16, task) for task in range(3)] == [16, 16, 16]
    with pytest.raises(UserError, match=r"method\.tasks: a layer of 3 features"):
        Tfm(tasks=4).slice_end(3, 0)


def test_new_features_read_old_ones_and_are_not_read_by_them():
    method = Tfm(first=0.67, tasks=2)
    networks = prepared(method, Three())
    network = networks[CLASSIFIER]
    method.grow(networks, "first", head_size=2)
    method.end_task(networks, "first", None)
    weight, x = network.second.layer.weight, torch.rand(4, 3)
    assert weight[:2, 2].tolist() == [0.0, 0.0]
    assert weight[2].tolist() == [0.0, 0.0, 0.0]
    method.grow(networks, "second", head_size=2)
    free = method.writable(CLASSIFIER, network, "second")
    assert free["second.layer.weight"].tolist() == [[False] * 3, [False] * 3, [True] * 3]
    assert bool(weight[2].all())  # drawn anew
    other = torch.cat([x[:, :2], x[:, 2:] + 1], 1)
    with torch.no_grad():
        select_task(network, "second")
        assert torch.equal(network.second(x)[:, :2], network.second(other)[:, :2])
        select_task(network, "first")
        weight[2].fill_(5.0)
        assert network.second(x)[:, 2].tolist() == [0.0] * 4


def test_further_tasks_than_planned_are_refused(learn):
    with pytest.raises(UserError, match=r"task shapes-3: method\.tasks deals the features out to 2 tasks"):
        learn(Tfm(tasks=2), epochs=0.1)


def test_the_plan_does_not_depend_on_the_tasks_seen(learn, three_tasks):
    """A run that is given a further task later has dealt out as much as one that knew of it."""
    two = learn(Tfm(tasks=3), three_tasks[:2], epochs=0.1, out="two")
    three = learn(Tfm(tasks=3), epochs=0.1, out="three")
    for task in ("shapes-1", "shapes-2"):
        for name, units in open_units(two.network, task).items():
            assert torch.equal(units, open_units(three.network, task)[name])


# both


@each_method
@pytest.mark.parametrize("norm", [True, False])
def test_files_alone_rebuild_every_task_to_the_bit(learn, three_tasks, name, norm):
    learned = learn(MAKE[name](), epochs=0.5, norm=norm, **ROUGH)
    for early, late in ((0, 1), (0, 2), (1, 2)):
        task = f"shapes-{early + 1}"
        assert torch.equal(learned.logits[early][task], learned.logits[late][task])

    def rebuilt(through: int) -> nn.Module:
        method, network = MAKE[name](), Tiny(4, norm)
        method.prepare({CLASSIFIER: network}, {CLASSIFIER: AdapterConfig(4, 4, heads=("head",))})
        network.to(memory_format=torch.channels_last)
        read_shared(learned.trainer.folder, {CLASSIFIER: network})
        for index in range(through + 1):
            read_task(learned.trainer.folder, index, f"shapes-{index + 1}", CLASSIFIER, network, method)
        return network.eval()

    network = rebuilt(2)
    assert tensors_digest(network.state_dict()) == tensors_digest(learned.network.state_dict())
    x = PIXELS(three_tasks[0].test.images)
    together = Together(network, task_names(network))(x)
    for index, answers in enumerate(together):
        alone = rebuilt(index)
        for each in (alone, network):
            select_task(each, f"shapes-{index + 1}")
        with torch.no_grad():
            assert torch.equal(alone(x), network(x))
            torch.testing.assert_close(answers, network(x), atol=1e-4, rtol=1e-4)


@each_method
@pytest.mark.parametrize(
    "asked", [pytest.param(8, marks=pytest.mark.slow), 9, pytest.param(12, marks=pytest.mark.slow)]
)
def test_a_stop_changes_no_bit(learn, monkeypatch, name, asked):
    six = {"epochs": 0.3, **ROUGH}
    whole = learn(MAKE[name](), out="whole", **six)
    parts = in_two_parts(learn, monkeypatch, MAKE[name], asked, "parts", **six)
    assert digests(parts) == digests(whole)
    assert [{k: v for k, v in r.items() if k != "seconds"} for r in parts.trainer.records.values()] == [
        {k: v for k, v in r.items() if k != "seconds"} for r in whole.trainer.records.values()
    ]


LAYERS = {"body.0": (16, 27), "body.3": (32, 16 * 9), "body.7": (32, 512)}  # units, inputs of each
OWN = 4 * 4 * (16 + 32) + 2 * 8 + 4 * 33 * 4  # norms with their counters, head


def values_in(tensors: dict[str, torch.Tensor]) -> int:
    return sum(tensor.numel() for key, tensor in tensors.items() if "/theta/" in key)


def test_a_file_of_tfm_holds_the_rows_of_its_features(learn):
    learned = learn(Tfm(tasks=3), epochs=0.1)
    for index, part in ((0, 0), (1, 4), (2, 4)):  # of the halves that the first task leaves, a half each
        tensors, _ = read_tensors(learned.trainer.folder.task_file(index, f"shapes-{index + 1}"))
        rows = sum(units // part * (inputs + 1) for units, inputs in LAYERS.values()) if part else 0
        assert values_in(tensors) == rows
        own = OWN + 2 * 4 * 32 + 3 * 4  # scale and shift where no norm is, a count per layer
        assert sum(tensor.nbytes for tensor in tensors.values()) == own + 4 * rows
    grown = growth(learned.network, (3, 16, 16), "shapes-3")
    assert (grown.adapter_parameters, grown.adapter_bits) == (64, 3 * 32)


def test_a_file_of_hat_holds_a_bit_per_unit_and_the_entries_newly_held(learn):
    learned = learn(Hat(), epochs=0.5)
    owned = [learned.method.owned(learned.network, f"shapes-{t}") for t in (1, 2, 3)]
    for index in range(3):
        tensors, _ = read_tensors(learned.trainer.folder.task_file(index, f"shapes-{index + 1}"))
        added = [sum(int((own & ~owned[index - 1][n]).sum()) for n, own in owned[index].items())] if index else [0]
        assert values_in(tensors) == added[0]
        bits = sum(units // 8 for units, _ in LAYERS.values())
        assert sum(tensor.nbytes for tensor in tensors.values()) == OWN + bits + 4 * added[0]
    grown = growth(learned.network, (3, 16, 16), "shapes-3")
    assert (grown.adapter_parameters, grown.adapter_bits) == (0, 80)


@each_method
def test_a_run_classifies_and_carries_logits_of_unchanged_tasks(tiny_classes, name):
    run = train_classifier(tiny_classes(f"method={{name: {name}}}"), "test")
    lines = [line for line in read_scores(run.folder.scores) if line.metric == "accuracy-TIL"]
    first = [line for line in lines if line.tested_on == run.tasks[0]]
    assert [line.details["carried"] for line in first] == [False, True, True]
    assert len({line.value for line in first}) == 1
    task, ranked = ClassifierRun(run.folder.path).classify(torch.zeros(3, 16, 16, dtype=torch.uint8))
    assert task in run.tasks
    assert sum(share for _, share in ranked) == pytest.approx(1)


@each_method
def test_gans_are_refused(tiny, name):
    with pytest.raises(UserError, match=f"{name} is for a classifier, not for a gan"):
        tiny(f"method={{name: {name}}}")
    assert not METHODS[name].suits("gan")
