"""DEN against values computed by hand, and what becomes of a network that it trains."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, merge_task, task_names, using_task
from eftgan.adapters.growing import add_units, growing_banks, units_of
from eftgan.adapters.units import NEW, all_pieces, arrange_units, own_blocks
from eftgan.errors import UserError
from eftgan.methods import Batch, Moment
from eftgan.methods.den import EXPAND, RETRAIN, SELECT, SPLIT, Den
from eftgan.methods.expansion import drifts, drop_dead_units, selected_units, shrink, shrink_rows
from eftgan.methods.heads import head_of
from eftgan.models.classifiers import build_classifier
from eftgan.names import CLASSIFIER
from eftgan.tensors import tensors_digest
from eftgan.training.stopping import Stopped, StopSignal


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))


def grown(network: nn.Module, tasks: int, head: str = "4", **keys) -> tuple[nn.Module, Den]:
    method, networks = Den(**keys), {CLASSIFIER: network}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=(head,))})
    for index in range(tasks):
        method.grow(networks, f"task{index + 1}", head_size=2)
    return network.eval(), method


def test_weights_shrink_by_the_proximal_maps():
    weight = torch.tensor([0.3, -0.05, -1.0])
    shrink(weight, 0.1)
    assert torch.allclose(weight, torch.tensor([0.2, 0.0, -0.9]))
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    shrink_rows(rows, 1.0)
    assert torch.allclose(rows, torch.tensor([[2.4, 3.2], [0.0, 0.0], [0.0, 0.0]]))


@torch.no_grad()
def test_units_are_selected_that_the_head_reads_and_that_these_read():
    network, _ = grown(small(), 2)
    head_of(network, "task2").weight.copy_(torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))
    network[2].layer.weight.copy_(torch.tensor([[5.0, 5.0], [5.0, 5.0], [0.0, 3.0]]))
    assert [units.tolist() for units in selected_units(network, "task2")] == [[False, True], [False, False, True]]


@torch.no_grad()
def test_a_unit_of_a_flattened_map_is_selected_by_any_of_its_pixels():
    network, _ = grown(build_classifier("lenet_apd", 2), 2, "head")
    for bank in growing_banks(network):
        bank.layer.weight.zero_()
    convolution, second, hidden, last = growing_banks(network)
    head_of(network, "task2").weight.zero_()[0, 7] = 1.0
    last.layer.weight[7, 3] = 1.0
    hidden.layer.weight[3, 64 * 11 + 5] = 1.0
    second.layer.weight[11, 2, 4, 4] = 1.0
    selected = selected_units(network, "task2")
    assert [units.nonzero().flatten().tolist() for units in selected] == [[2], [11], [3], [7]]
    assert convolution.place == 0


@torch.no_grad()
def test_drift_is_the_distance_of_all_weights_that_a_unit_reads_by():
    network, _ = grown(small(), 1)
    first = growing_banks(network)[0]
    first.layer.weight.zero_()
    anchor = {piece.name: piece.parameter.clone() for _, piece in all_pieces(network)}
    first.layer.weight[1] = torch.tensor([3.0, 4.0])
    first.layer.bias[0] = 9.0
    assert drifts(network, first, anchor).tolist() == [0.0, 5.0]


@torch.no_grad()
def test_units_of_earlier_tasks_drift_by_all_their_pieces():
    network, _ = grown(small(), 1)
    for task, units in (("two", [1, 0]), ("three", [0, 0])):
        Den.grow(Den(), {CLASSIFIER: network}, task, head_size=2)
        add_units(network, task, units)
    second = growing_banks(network)[1]
    anchor = {piece.name: piece.parameter.clone() for _, piece in all_pieces(network)}
    second.layer.weight[0, 0] += 3.0
    own_blocks(network, "two")[1].right[0, 0] += 4.0
    assert drifts(network, second, anchor).tolist() == pytest.approx([5.0, 0.0, 0.0])


@torch.no_grad()
def test_own_units_and_the_head_read_the_copies_and_no_longer_the_originals():
    """Where earlier units do not read the copies, a network of own units computes what it computed before."""
    network, _ = grown(small(), 2)
    arrange_units(network, "task2", [[NEW], [NEW, NEW]])
    second = own_blocks(network, "task2")[1]
    network[2].layer.weight.zero_()  # earlier units of the second layer see nothing of the first ...
    second.right.zero_()
    x = torch.randn(5, 2)
    with using_task(network, "task2"):
        before = network(x)
        arrange_units(network, "task2", [[2, 1], [3, 4, 0]])  # a copy of unit 1 below, of unit 0 above
        own_blocks(network, "task2")[1].right.zero_()
        assert units_of(network, "task2") == [2, 3]
        assert torch.allclose(network(x), before, atol=1e-6)
    second = own_blocks(network, "task2")[1]
    assert second.bottom[:2, 1].tolist() == [0.0, 0.0]
    assert bool((second.bottom[:2, 3] != 0).all())
    assert head_of(network, "task2").weight[:, 0].tolist() == [0.0, 0.0]
    with using_task(network, "task2"):
        assert torch.allclose(merge_task(network, "task2")(x), network(x), atol=1e-6)


@torch.no_grad()
def test_copies_are_normalised_as_the_units_that_they_are_copies_of():
    layers = [nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU()]
    network, _ = grown(nn.Sequential(*layers, nn.Linear(2, 2)), 2, "6")
    arrange_units(network, "task2", [[], [NEW]])
    norm, x = network[4].tasks["t002"], torch.randn(5, 2)
    for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        tensor.copy_(torch.rand(3) + 0.5)
    with using_task(network, "task2"):
        before = network(x)
        arrange_units(network, "task2", [[], [2, 0]])
        assert torch.allclose(network(x), before, atol=1e-6)
        arrange_units(network, "task2", [[], [3]])
    assert torch.equal(norm.running_mean[2], norm.running_mean[0])


@torch.no_grad()
def test_units_that_read_nothing_are_taken_away_with_what_is_read_of_them():
    network, _ = grown(build_classifier("lenet_apd", 2), 2, "head")
    arrange_units(network, "task2", [[NEW] * 3, [NEW] * 2, [NEW], [NEW]])
    blocks = own_blocks(network, "task2")
    blocks[0].bottom[1].zero_()
    blocks[0].own_bias[1] = 0.0
    blocks[1].bottom[0].zero_()
    blocks[1].own_bias[0] = 0.0
    x = torch.randn(2, 3, 32, 32)
    with using_task(network, "task2"):
        before = network(x)
        drop_dead_units(network, "task2")
        assert units_of(network, "task2") == [2, 1, 1, 1]
        assert torch.allclose(network(x), before, atol=1e-5)


@torch.no_grad()
def test_splitting_copies_what_moved_farthest_and_puts_it_back():
    network, method = grown(small(), 1, drift=0.5, units=[1])
    networks = {CLASSIFIER: network}
    method.end_task(networks, "task1", None)
    method.grow(networks, "task2", head_size=2)
    before = {bank.place: bank.layer.weight.clone() for bank in growing_banks(network)}
    network[0].layer.weight[0] += 1.0
    network[0].layer.weight[1] += 2.0
    network[2].layer.weight[2] += 0.1  # not far enough
    moved = network[0].layer.weight[1].clone()
    method.begin_stage(networks, "task2", SPLIT)
    assert units_of(network, "task2") == [1, 0]
    assert torch.equal(own_blocks(network, "task2")[0].bottom[0], moved)
    assert torch.equal(network[0].layer.weight[1], before[0][1])
    assert torch.equal(network[0].layer.weight[0], before[0][0] + 1.0)  # one at the most
    assert torch.equal(network[2].layer.weight[2], before[1][2] + 0.1)


def test_weights_of_earlier_tasks_are_pulled_back_and_do_not_decay():
    network, method = grown(small(), 1, strength=3.0)
    networks = {CLASSIFIER: network}
    method.end_task(networks, "task1", None)
    method.grow(networks, "task2", head_size=2)
    for stage, pulls in ((SELECT, False), (RETRAIN, True), (EXPAND, False), (SPLIT, True)):
        method.begin_stage(networks, "task2", stage)
        method.end_stage(networks, "task2", stage)
        parameters = method.trainable(networks, "task2")[CLASSIFIER]
        with torch.no_grad():
            network[0].layer.weight[0, 0] += 2.0
        penalty = method.penalty(CLASSIFIER, networks, Batch(torch.zeros(1)))
        assert float(torch.as_tensor(penalty).detach()) == pytest.approx(3.0 / 2 * 4.0 if pulls else 0.0)
        with torch.no_grad():
            network[0].layer.weight[0, 0] -= 2.0
        own, held = method.groups(CLASSIFIER, parameters)
        assert (own.decay, held.decay) == (None, 0.0)
        assert {*own.parameters, *held.parameters} == set(parameters)
        assert set(held.parameters) == (
            {*network[0].layer.parameters(), *network[2].layer.parameters()} if pulls else set()
        )


def test_the_loss_of_the_end_of_retraining_decides():
    method, batch = Den(), Batch(torch.zeros(1))
    for step in range(20):
        method.begin_step(CLASSIFIER, {}, Moment(step, step / 20))
        method.objective(RETRAIN, batch, lambda step=step: torch.tensor(float(step)))
    assert method._loss.tolist() == [17.0 + 18.0 + 19.0, 3.0]
    for step in range(3):
        method.begin_step(CLASSIFIER, {}, Moment(step, step / 3))
        method.objective(RETRAIN, batch, lambda step=step: torch.tensor(float(step)))
    assert method._loss.tolist() == [2.0, 1.0]


@torch.no_grad()
def test_weights_shrink_by_the_learning_rate_times_their_penalty():
    network, method = grown(small(), 1, l1=0.5)
    for bank in growing_banks(network):
        bank.layer.weight.fill_(1.0)
    for rate, expected in ((0.2, 0.9), (0.02, 0.89)):
        method.begin_step(CLASSIFIER, {CLASSIFIER: network}, Moment(0, 0.0, rate=rate))
        method.after_step(CLASSIFIER, {CLASSIFIER: network})
        assert network[0].layer.weight.flatten().tolist() == pytest.approx([expected] * 4)


def test_units_are_added_only_where_the_loss_stays_high(learn, three_tasks):
    high = learn(Den(loss_threshold=0.0, group=0.0, drift=1e9, units=[3, 2, 4]), three_tasks[:2], epochs=1, out="high")
    low = learn(Den(loss_threshold=1e9, drift=1e9), three_tasks[:2], epochs=1, out="low")
    dead = learn(Den(loss_threshold=0.0, group=1e4, drift=1e9), three_tasks[:2], epochs=1, out="dead")
    assert units_of(high.network, "shapes-2") == [3, 2, 4]
    assert high.trainer.records["shapes-2"]["added-units"] == 9
    assert units_of(low.network, "shapes-2") == units_of(dead.network, "shapes-2") == [0, 0, 0]
    assert units_of(high.network, "shapes-1") == [0, 0, 0]


def test_what_is_not_selected_stays_and_the_rest_is_held(learn, three_tasks, monkeypatch):
    """Nothing but weights between selected units moves while a task is retrained."""
    seen: dict[str, dict[str, torch.Tensor]] = {}
    heads: dict[str, torch.Tensor] = {}
    begin, end = Den.begin_stage, Den.end_stage

    def note(kind, call):
        def noting(self, networks, task, stage):
            call(self, networks, task, stage)
            pieces = all_pieces(networks[CLASSIFIER])
            heads[f"{task} {stage} {kind}"] = head_of(networks[CLASSIFIER], task).weight.detach().clone()
            seen[f"{task} {stage} {kind}"] = {piece.name: piece.parameter.detach().clone() for _, piece in pieces}
            if (stage, kind) == (SELECT, "end"):
                self._selected = [torch.arange(len(units)) % 2 == 0 for units in self._selected]

        return noting

    monkeypatch.setattr(Den, "begin_stage", note("begin", begin))
    monkeypatch.setattr(Den, "end_stage", note("end", end))
    learn(Den(loss_threshold=1e9, drift=1e9), three_tasks[:2], epochs=1)
    before, after = (seen[f"shapes-2 {RETRAIN} {kind}"] for kind in ("begin", "end"))
    changed = {name: (before[name] != tensor) for name, tensor in after.items()}
    weights = [tensor for name, tensor in changed.items() if name.endswith("layer.weight")]
    for index, moved in enumerate(weights):
        assert bool(moved.any())
        assert not moved[1::2].any()
        read = moved if index != 2 else moved.view(len(moved), -1, 16)  # 16 pixels of a flattened map
        assert index == 0 or (bool(read[:, ::2].any()) and not read[:, 1::2].any())
    assert not heads[f"shapes-2 {RETRAIN} end"][:, 1::2].any()
    assert bool(heads[f"shapes-2 {RETRAIN} end"][:, ::2].any())
    for stage in (SELECT, EXPAND):
        first, last = (seen[f"shapes-2 {stage} {kind}"] for kind in ("begin", "end"))
        assert all(torch.equal(tensor, last[name]) for name, tensor in first.items())


def test_a_stage_of_splitting_resumes_with_the_units_that_it_made(learn, monkeypatch):
    def run(out):
        return learn(Den(loss_threshold=0.0, drift=0.0, units=[2]), epochs=1, out=out)

    whole = run("whole")
    assert sum(units_of(whole.network, task_names(whole.network)[1])) > 6
    calls = iter(range(1, 1000))
    steps = whole.trainer.records["shapes-1"]["steps"]
    monkeypatch.setattr(StopSignal, "requested", lambda self: next(calls) == int(1.9 * steps))
    with pytest.raises(Stopped):
        run("parts")
    monkeypatch.undo()
    assert tensors_digest(run("parts").network.state_dict()) == tensors_digest(whole.network.state_dict())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"units": [1, 2]}, r"method\.units: 2 numbers for 4 layers that grow: convolutions\.0, "),
        ({"units": []}, r"method\.units: say how many units"),
    ],
)
def test_other_numbers_of_layers_are_refused(keys, message):
    with pytest.raises(UserError, match=message):
        grown(build_classifier("lenet_apd", 4), 1, "head", **keys)
