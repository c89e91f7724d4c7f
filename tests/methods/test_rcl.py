"""RCL against values computed by hand, and what it promises: layers that grow, and earlier tasks that do not see it."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, Together, merge_task, named_banks, remove_task, task_names, using_task
from eftgan.adapters.growing import growing_banks, units_of
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth
from eftgan.evaluation.task_inference import logits_together
from eftgan.methods.controller import Controller, policy_loss, reward
from eftgan.methods.rcl import Rcl
from eftgan.models.classifiers import build_classifier
from eftgan.names import CLASSIFIER
from eftgan.training.stopping import Stopped, StopSignal


def grown(network: nn.Module, tasks: int, classes: int, actions: list[int], head: str = "head") -> nn.Module:
    method, networks = Rcl(trials=0, actions=actions), {CLASSIFIER: network}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=(head,))})
    for index in range(tasks):
        method.grow(networks, f"task{index + 1}", head_size=classes)
    return network.eval()


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))


def test_a_task_grows_by_what_new_units_read_and_what_is_read_of_them():
    """Input 3, hidden 2 and 2, one and two more units, two classes: 24 parameters."""
    network = grown(small(), 2, 2, [1, 2], head="4")
    counts = growth(network, (3,), "task2")
    assert counts.adapter_parameters == (3 + 1) + 1 * 2 + (3 * 2 + 2)
    assert counts.adapter_parameters + counts.head_parameters == 24
    assert counts.base_parameters == 20
    assert [layer.sizes for layer in counts.layers] == [{"units": 1}, {"units": 2}]
    assert counts.bytes_task == 4 * 24 + 2 * 4  # and for each layer how many tasks come before
    flops = 3 * (2 * 3 + 1) + 3 + 4 * (2 * 3 + 1) + 4 + 2 * (2 * 4 + 1)
    assert counts.flops_task == flops


@torch.no_grad()
def test_a_task_computes_with_the_old_weight_and_its_blocks_and_the_first_with_the_old_alone():
    network = grown(small(), 2, 2, [1, 2], head="4")
    first, second = growing_banks(network)
    first.layer.weight.copy_(torch.arange(6.0).view(2, 3))
    second.layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    block = second.tasks["t002"]
    block.right.copy_(torch.tensor([[5.0], [6.0]]))
    block.bottom.copy_(torch.tensor([[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]))
    one, two = (network.get_submodule("0").registry.row(task) for task in ("task1", "task2"))
    assert torch.equal(second.tensors_of(one)[0], second.layer.weight)
    assert second.tensors_of(two)[0].tolist() == [[1, 2, 5], [3, 4, 6], [7, 8, 9], [10, 11, 12]]
    assert first.tensors_of(two)[0].shape == (3, 3)
    with using_task(network, "task2"):
        assert network(torch.ones(4, 3)).shape == (4, 2)


def test_new_channels_are_appended_behind_those_that_a_flattened_map_had():
    network = grown(build_classifier("lenet_apd", 10), 3, 10, [1, 2, 28, 18])
    shapes = [tuple(bank.tensors_of(bank.registry.row("task3"))[0].shape) for bank in growing_banks(network)]
    assert shapes == [(22, 3, 5, 5), (54, 22, 5, 5), (856, 54 * 64), (536, 856)]
    assert network.head.tasks["t003"].weight.shape == (10, 536)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        for task in ("task1", "task3"):
            with using_task(network, task):
                assert torch.allclose(merge_task(network, task)(x), network(x), atol=1e-5)


def test_the_recipe_for_the_lenet_of_apd_makes_it_as_large_as_the_paper_says():
    network = grown(build_classifier("lenet_apd", 10), 10, 10, [1, 2, 28, 18])
    counts = [growth(network, (3, 32, 32), task) for task in task_names(network)]
    total = 2_992_880 - 5_010 + sum(each.adapter_parameters + each.head_parameters for each in counts)
    assert sum(p.numel() for p in network.parameters()) == total + 5_010  # the pattern of the heads
    assert total / 2_992_880 == pytest.approx(1.80, abs=0.005)


def test_tasks_of_different_widths_answer_one_by_one(learn):
    learned = learn(Rcl(trials=0, actions=[3, 2, 5]), epochs=0.3)
    names, x = task_names(learned.network), torch.randn(5, 3, 16, 16)
    network = learned.network.eval()
    with pytest.raises(UserError, match="cannot stand side by side"):
        Together(network, names)
    with pytest.raises(UserError, match="cannot share a batch"), using_task(network, tuple(names[:2])):
        network(x[:4])
    for name, answer in zip(names, logits_together(network, names, x), strict=True):
        with torch.no_grad(), using_task(network, name):
            assert torch.allclose(answer, network(x), atol=1e-5)
    norms = [bank.tasks["t003"].num_features for _, bank in named_banks(network) if bank.part == "norms"]
    assert norms == [16 + 2 * 3, 32 + 2 * 2]


def test_without_new_units_a_task_starts_as_the_one_before_it():
    network = grown(small(), 2, 2, [0], head="4")
    with torch.no_grad():
        network[4].tasks["t002"].load_state_dict(network[4].tasks["t001"].state_dict())
        answers = []
        for task in ("task1", "task2"):
            with using_task(network, task):
                answers.append(network(torch.ones(1, 3)))
    assert torch.equal(*answers)


def test_a_task_that_others_read_is_not_removed_before_them():
    network = grown(small(), 2, 2, [1], head="4")
    with pytest.raises(UserError, match="'task1' is read by the tasks after it"):
        remove_task(network, "task1")
    remove_task(network, "task2")
    remove_task(network, "task1")
    assert task_names(network) == []


@pytest.mark.parametrize(
    ("name", "actions", "message"),
    [
        ("resnet8", [1], r"method\.name: rcl lets the layers of a chain grow; in ResNet"),
        ("lenet_apd", [1, 2], r"method\.actions: 2 numbers for 4 layers that grow: convolutions\.0, "),
    ],
)
def test_networks_that_are_no_chain_and_other_numbers_of_layers_are_refused(name, actions, message):
    with pytest.raises(UserError, match=message):
        grown(build_classifier(name, 4), 1, 4, actions)


@pytest.mark.parametrize("key", ["actions", "most"])
def test_no_numbers_of_units_are_refused(key):
    with pytest.raises(UserError, match=rf"method\.{key}"):
        Rcl(**{key: []})


def test_the_policy_makes_likelier_what_was_rewarded_more_than_expected():
    logits = torch.zeros(1, 2, requires_grad=True)
    policy_loss(logits, torch.tensor([0]), 2.0).backward()
    assert logits.grad.tolist() == [[-1.0, 1.0]]
    assert reward(0.62, [5, 10, 20], 1e-4) == pytest.approx(0.6165)


def test_a_controller_learns_to_choose_what_pays():
    torch.manual_seed(0)
    controller = Controller([3, 1])
    assert controller().shape == (2, 4)
    assert controller()[1, 2:].tolist() == [-torch.inf] * 2  # one unit at most in the second layer
    for _ in range(150):
        units = controller.choose()
        controller.learn(units, float(units == [2, 1]))
    assert controller().softmax(1)[0, 2] > 0.9
    assert 0.5 < controller.value.item() < 1.1


def test_a_controller_goes_on_from_its_tensors_as_if_it_had_never_stopped():
    torch.manual_seed(0)
    one = Controller([3, 1])
    one.learn([2, 1], 0.5)
    other = Controller([3, 1])
    other.load_tensors({key: tensor.clone() for key, tensor in one.tensors().items()})
    for controller in (one, other):
        controller.learn([0, 1], 0.7)
    assert all(torch.equal(tensor, other.tensors()[key]) for key, tensor in one.tensors().items())


def test_the_best_trial_is_kept_and_judged_on_images_that_were_held_out(learn, three_tasks, monkeypatch):
    rewards, told = [], []
    learns, measured = Controller.learn, Rcl.measured
    monkeypatch.setattr(Controller, "learn", lambda self, u, r: (rewards.append((r, list(u))), learns(self, u, r)))
    monkeypatch.setattr(Rcl, "measured", lambda self, s, a: (told.append((s, a)), measured(self, s, a)))
    learned = learn(Rcl(trials=4, most=[6, 5, 7], price=0.01), three_tasks[:2], epochs=1)
    assert [stage for stage, _ in told] == ["trial 1", "trial 2", "trial 3", "trial 4"]
    assert [r for r, _ in rewards] == pytest.approx(
        [a - 0.01 * sum(u) for (_, a), (_, u) in zip(told, rewards, strict=True)]
    )
    assert all((40 * accuracy) % 1 == pytest.approx(0) for _, accuracy in told)  # a tenth of 400 images
    best = max(rewards, key=lambda pair: pair[0])[1]
    assert len({tuple(units) for _, units in rewards}) > 1
    assert units_of(learned.network, "shapes-2") == best
    assert learned.trainer.records["shapes-2"]["added-units"] == sum(best)
    assert units_of(learned.network, "shapes-1") == [0, 0, 0]


def test_a_stop_in_a_later_trial_changes_no_bit(learn, three_tasks, monkeypatch):
    def run(out):
        return learn(Rcl(trials=2, most=[8]), three_tasks[:2], epochs=0.3, out=out)

    whole = run("whole")
    calls = iter(range(1, 1000))
    monkeypatch.setattr(StopSignal, "requested", lambda self: next(calls) == 12)
    with pytest.raises(Stopped, match="at step 5 of 6"):  # a trial is three steps
        run("parts")
    monkeypatch.undo()
    parts = run("parts")
    ours, its = parts.network.state_dict(), whole.network.state_dict()
    assert [key for key in its if not torch.equal(ours[key], its[key])] == []
    assert units_of(parts.network, "shapes-2") == units_of(whole.network, "shapes-2")
