"""Side-tuning against values computed by hand, and what it promises: a frozen base, and a network of a task's own."""

import math

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, Together, mergeable, task_names, using_task
from eftgan.adapters.side import SideNetwork
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth
from eftgan.evaluation.task_inference import logits_together
from eftgan.methods.side import Side, side_of
from eftgan.models.classifiers import build_classifier
from eftgan.names import CLASSIFIER


class Constant(nn.Module):
    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = torch.tensor([values])

    def forward(self, x):
        return self.values


@pytest.mark.parametrize(("alpha", "blend"), [(0.0, [1.0, 1.0]), (math.log(3), [1.5, 2.5])])
@torch.no_grad()
def test_the_head_reads_a_blend_of_base_and_side(alpha, blend):
    side = SideNetwork((2,), 2)
    base = torch.tensor([[2.0, 4.0]])
    assert torch.equal(side(base, None), base)  # neutral: no network beside it
    side.reset_parameters()
    assert side.alpha.item() == 0
    side.side, side.alpha.data = Constant(0.0, -2.0), torch.tensor(alpha)
    assert side(base, torch.zeros(1, 3, 4, 4)).tolist() == [pytest.approx(blend)]


def grown(*tasks: str, name: str = "lenet_apd", **keys) -> nn.Module:
    method, networks = Side(**keys), {CLASSIFIER: build_classifier(name, 10)}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=("head",))})
    for task in tasks:
        method.grow(networks, task, head_size=10)
    return networks[CLASSIFIER]


def test_a_later_task_adds_a_side_network_and_the_first_none():
    network = grown("one", "two")
    first, second = (growth(network, (3, 32, 32), task) for task in ("one", "two"))
    assert (first.adapter_parameters, first.flops_growth) == (0, 0)
    own = 9 * (3 * 16 + 16 * 16 + 16 * 32 + 32 * 64) + 2 * (16 + 16 + 32 + 64) + 64 * 500 + 500 + 1
    assert own == 58_533
    assert (second.adapter_parameters, second.base_parameters) == (own, 2_992_880)
    assert second.bytes_task == 4 * (own + 5_010)
    pixels = 1024 * 16 * (2 * 27 + 3) + 256 * 16 * (2 * 144 + 3) + 64 * 32 * (2 * 144 + 3) + 64 * 64 * (2 * 288 + 3)
    assert second.flops_task - second.flops_base == pixels + 500 * (2 * 64 + 1) + 2 * 500


def test_a_side_network_starts_from_the_previous_one_or_anew():
    for init, same in (("previous", True), ("random", False)):
        network = grown("one", "two", "three", init=init)
        second, third = (side_of(network, task).side[0].weight for task in ("two", "three"))
        assert torch.equal(second, third) == same


def test_a_pretrained_base_has_a_side_network_from_the_first_task_on():
    assert side_of(grown("one", base="pretrained"), "one").side is not None


def test_the_share_of_the_base_is_learned_and_told(learn):
    learned = learn(Side(), epochs=0.3)
    assert "base-share" not in learned.trainer.records["shapes-1"]
    share = learned.trainer.records["shapes-3"]["base-share"]
    assert 0 < share < 1
    assert share != 0.5
    names, x = task_names(learned.network), torch.randn(5, 3, 16, 16)
    assert not mergeable(learned.network, names[1])
    with pytest.raises(UserError, match="cannot stand side by side"):
        Together(learned.network, names)
    answers = logits_together(learned.network, names, x)
    learned.network.eval()
    for name, answer in zip(names, answers, strict=True):
        with torch.no_grad(), using_task(learned.network, name):
            assert torch.allclose(answer, learned.network(x), atol=1e-5)


def test_a_side_network_without_convolutions_is_refused():
    with pytest.raises(UserError, match=r"method\.widths"):
        Side(widths=[])
