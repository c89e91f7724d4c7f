"""PNN against values computed by hand, and what it promises: columns that only read earlier ones."""

import dataclasses

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, Together, mergeable, named_banks, task_names, using_task
from eftgan.adapters.columns import Column, Lateral
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth
from eftgan.evaluation.task_inference import logits_together
from eftgan.methods import METHODS
from eftgan.methods.pnn import Pnn
from eftgan.models.classifiers import build_classifier
from eftgan.names import CLASSIFIER


class Chain(nn.Module):
    """One input -> one hidden unit -> another -> one output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = (nn.Linear(1, 1, bias=False) for _ in range(3))

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


def grown(network: nn.Module, tasks: int, head_size: int = 1, **keys) -> nn.Module:
    method, networks = Pnn(**keys), {CLASSIFIER: network}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=("head",))})
    for index in range(tasks):
        method.grow(networks, f"task{index + 1}", head_size=head_size)
    return network.eval()


@torch.no_grad()
def test_a_layer_adds_what_it_reads_of_an_earlier_column():
    """W=2, h=1.5, alpha=0.5, h1=1, V=2, U=-1: relu(3 - relu(1)) = 2."""
    network = grown(Chain(), 2)
    for key, h in (("t001", 1.0), ("t002", 1.5)):
        network.first.tasks[key].own.weight.fill_(h)
        network.second.tasks[key].own.weight.fill_(2.0)
        network.head.tasks[key].weight.fill_(1.0)
    lateral = network.second.tasks["t002"].lateral
    assert lateral.alpha.tolist() == [1.0]  # 1/(t-1)
    lateral.alpha.fill_(0.5)
    lateral.V.weight.fill_(2.0)
    lateral.V.bias.zero_()
    lateral.U.weight.fill_(-1.0)
    at_head = network.head.tasks["t002"].lateral
    at_head.U.weight.zero_()
    with using_task(network, "task2"):
        assert network(torch.ones(1, 1)).item() == 2.0
        at_head.U.weight.fill_(1.0)
        at_head.V.weight.fill_(-1.0)
        at_head.V.bias.zero_()
        assert network(torch.ones(1, 1)).item() == 0.0  # 2 - h1 of the head, which is 2: no relu before outputs
    with using_task(network, "task1"):
        assert network(torch.ones(1, 1)).item() == 2.0


def test_the_input_of_the_network_is_read_by_no_lateral_and_flattened_maps_channel_by_channel():
    network = grown(build_classifier("lenet_apd", 10), 2, head_size=10)
    of_second = {name: bank.tasks["t002"] for name, bank in named_banks(network)}
    assert of_second["convolutions.0"].lateral is None
    assert tuple(of_second["hidden.1"].lateral.V.weight.shape) == (50, 50, 1)
    assert tuple(of_second["hidden.1"].lateral.U.weight.shape) == (800, 3200)
    pixels = torch.randn(2, 50 * 64)
    lateral = of_second["hidden.1"].lateral
    by_map = lateral.V(pixels.view(2, 50, 64)).relu().flatten(1)
    assert torch.equal(lateral([pixels]), lateral.U(by_map))


def test_ten_narrow_columns_on_the_lenet_of_apd_cost_as_much_as_the_formula_says():
    width, widths = 0.229, (5, 11, 183, 114)
    network = grown(build_classifier("lenet_apd", 10), 10, head_size=10, width=width)
    inputs, outputs = (3 * 25, 5 * 25, 11 * 64, 183, 114), (*widths, 10)
    column = sum(i * o + o for i, o in zip(inputs, outputs, strict=True))
    U = sum(i * o for i, o in zip(inputs[1:], outputs[1:], strict=True))
    V, V_bias = sum(n * n for n in widths), sum(widths)
    expected = [column + (t > 1) * (U + V_bias + (t - 1) * (V + len(widths))) for t in range(1, 11)]
    counts = [growth(network, (3, 32, 32), task) for task in task_names(network)]
    assert [each.adapter_parameters + each.head_parameters for each in counts] == expected
    assert counts[0].base_parameters == 2_992_880
    assert counts[0].shared_parameters == 0
    assert sum(expected) / 2_992_880 == pytest.approx(1.67, abs=0.005)
    assert [each.bytes_task for each in counts] == [4 * each for each in expected]
    assert counts[9].flops_task > 9 * counts[0].flops_task  # all earlier columns run


@dataclasses.dataclass
class WithoutLaterals(Pnn):
    """U is 0 at every step."""

    def after_step(self, role, networks):
        super().after_step(role, networks)
        silence(networks[role])

    def grow(self, networks, task, **keys):
        super().grow(networks, task, **keys)
        silence(networks[CLASSIFIER])


def silence(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, Lateral):
            module.U.weight.data.zero_()


def test_with_laterals_of_zero_every_task_is_that_of_separate_networks(learn):
    columns = learn(WithoutLaterals(), epochs=0.5, out="columns")
    separate = learn(METHODS["separate"](), epochs=0.5, out="separate")
    assert any(isinstance(module, Lateral) for module in columns.network.modules())
    row = columns.network.body[0].registry.rows["shapes-3"]
    for name, bank in named_banks(columns.network):
        mine, its = bank.tasks[row[bank.part]], separate.network.get_submodule(name).tasks["t003"]
        for key, tensor in its.state_dict().items():
            assert torch.equal(getattr(mine, "own", mine).state_dict()[key], tensor), (name, key)


def test_earlier_columns_run_with_their_own_statistics_and_leave_these_alone(learn):
    learned = learn(Pnn(), epochs=0.3)
    network = learned.network.train()
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    with using_task(network, "shapes-3"):
        network(torch.randn(8, 3, 16, 16))
    moved = {key for key, tensor in network.state_dict().items() if not torch.equal(tensor, before[key])}
    assert moved
    assert all(".tasks.t003." in key for key in moved)
    assert all(module.training for module in network.modules())
    assert not any(bank.notes for _, bank in named_banks(network) if hasattr(bank, "notes"))


def test_columns_are_not_merged_nor_asked_side_by_side_but_answer_one_by_one(learn):
    learned = learn(Pnn(width=0.5), epochs=0.3)
    network, names = learned.network, task_names(learned.network)
    x = torch.randn(5, 3, 16, 16)
    assert not mergeable(network, names[1])
    with pytest.raises(UserError, match="cannot stand side by side"):
        Together(network, names)
    answers = logits_together(network, names, x)
    network.eval()
    for name, answer in zip(names, answers, strict=True):
        with torch.no_grad(), using_task(network, name):
            assert torch.allclose(answer, network(x), atol=1e-5)
    with pytest.raises(UserError, match="cannot share a batch"), using_task(network, tuple(names)):
        network(x)


def test_another_width_needs_a_chain():
    with pytest.raises(UserError, match=r"method\.width: 0\.5.*chains of simple layers; in ResNet"):
        grown(build_classifier("resnet8", 4), 1, width=0.5)


def test_columns_of_a_network_with_branches_read_each_other(learn):
    network = build_classifier("resnet8", 4)
    method, networks = Pnn(), {CLASSIFIER: network}
    heads = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=tuple(heads))})
    method.grow(networks, "one", head_size=4)
    method.grow(networks, "two", head_size=3)
    laterals = [m.lateral is not None for m in network.modules() if isinstance(m, Column)]
    assert sum(laterals) == len(laterals) // 2 - 1  # all layers of the second task but its first
    x = torch.randn(2, 3, 16, 16)
    answer = network.eval()(x)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Column) and module.lateral is not None:
                module.lateral.alpha.add_(1.0)
    assert answer.shape == (2, 3)
    assert not torch.allclose(network(x), answer)
