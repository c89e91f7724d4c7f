"""Masks on weights: scores while they train, a bit a weight afterwards."""

import pytest
import torch
from adapter_tools import images, output_of, small_cnn, train
from torch import nn

from eftgan.adapters import (
    AdapterConfig,
    Together,
    add_task,
    insert_adapters,
    load_shared,
    load_task_file,
    merge_task,
    own_transforms,
    save_task,
    shared_state,
    task_state,
    using_task,
)
from eftgan.adapters.layout import restore_layout, task_layout
from eftgan.adapters.transforms import WeightMask
from eftgan.adapters.transforms.mask import kept_share, without_smallest
from eftgan.adapters.upsampling import fuse_upsampling
from eftgan.errors import UserError
from eftgan.evaluation.growth import format_growth, growth, growth_of
from eftgan.tensors import read_tensors, unpack_bits

RULES = {"threshold": {"rule": "threshold"}, "top": {"rule": "top", "density": 0.4}}


def masked(rule: str) -> nn.Module:
    network = small_cnn()
    insert_adapters(network, AdapterConfig(kind="mask", heads=("7",), options=RULES[rule]))
    return network


@pytest.fixture(params=list(RULES))
def rule(request) -> str:
    torch.manual_seed(0)
    return request.param


def drawn(rule: str) -> nn.Module:
    """Two tasks, the first finished, the second in training."""
    network = masked(rule)
    for task in ("one", "two"):
        add_task(network, task)
        for mask in own_transforms(network, task).values():
            mask.begin()
            nn.init.normal_(mask.scores, 0.006, 0.01)
    for mask in own_transforms(network, "one").values():
        mask.finish()
    return network


def test_scores_above_the_threshold_open_a_weight_and_gradients_go_straight_through():
    mask, weight = WeightMask((1, 2)), torch.tensor([[0.5, -0.1]])
    mask.begin()
    assert mask.mask().all()
    mask.scores.data = torch.tensor([[0.01, 0.004]])
    y = mask.weight(weight) @ torch.tensor([1.0, 2.0])
    assert y.tolist() == [0.5]
    y.sum().backward()
    assert torch.allclose(mask.scores.grad, torch.tensor([[0.5, -0.2]]))
    torch.optim.SGD([mask.scores], 0.02).step()
    assert torch.allclose(mask.scores, torch.tensor([[0.0, 0.008]]))
    assert mask.mask().tolist() == [[False, True]]
    assert torch.allclose(mask.weight(weight) @ torch.tensor([1.0, 2.0]), torch.tensor([-0.2]))
    mask.scores.data.fill_(0.005)
    assert not mask.mask().any()  # a score at the threshold is closed


def test_the_largest_scores_stay_whatever_their_sign():
    mask, weight = WeightMask((2, 2), kept=0.5), torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    mask.begin()
    mask.scores.data = torch.tensor([[0.3, -0.9], [0.1, -0.2]])
    y = mask.weight(weight) @ torch.tensor([2.0, 1.0])
    assert y.tolist() == [1.0, 0.0]
    y.sum().backward()
    assert mask.scores.grad.tolist() == [[2.0, 1.0], [2.0, -1.0]]
    mask.scores.data.fill_(0.1)
    assert mask.mask().sum() == 2  # ties leave the exact number


@pytest.mark.parametrize("values", [1_000_000, 5])  # few equal sizes, and many
def test_leaving_out_the_smallest_is_what_sorting_would_leave_out(values):
    generator = torch.Generator().manual_seed(values)
    sizes = torch.randint(values, (37,), generator=generator).float()
    for count in range(38):
        expected = torch.ones(37, dtype=torch.bool)
        expected[sizes.argsort(stable=True)[:count]] = False
        assert torch.equal(without_smallest(sizes, count), expected)


def test_the_share_that_a_budget_keeps():
    assert kept_share((160, 160, 3, 3), 16) == pytest.approx(0.0222, abs=5e-5)
    assert kept_share((64, 3, 3, 3), 16) == 0.5


def test_finishing_drops_scores_and_changes_no_output(rule):
    network, x = drawn(rule), images()
    before = output_of(network, "two", x)
    sizes = {"0": 216, "3": 216, "6": 1152}  # weights of the layers
    scores = {key: t.numel() for key, t in task_state(network, "two").items() if key.endswith("scores")}
    assert scores == {f"{name}.scores": size for name, size in sizes.items()}
    for mask in own_transforms(network, "two").values():
        mask.finish()
    assert torch.equal(output_of(network, "two", x), before)
    bits = {key: t.nbytes for key, t in task_state(network, "two").items() if key.endswith("bits")}
    assert bits == {f"{name}.bits": size // 8 for name, size in sizes.items()}
    assert not any(key.endswith("scores") for key in task_state(network, "two"))
    for mask in own_transforms(network, "two").values():  # scores that begin from bits give the same mask
        was = mask.mask()
        mask.begin()
        assert rule == "top" or torch.equal(mask.mask(), was)


def test_bits_stand_in_one_order_whatever_the_layout():
    mask = WeightMask((4, 3, 3, 3))
    mask.begin()
    nn.init.normal_(mask.scores, 0.005, 0.01)
    wanted = mask.mask().clone()
    mask.to(memory_format=torch.channels_last)
    assert torch.equal(mask.mask(), wanted)
    mask.finish()
    assert torch.equal(unpack_bits(mask.bits, (4, 3, 3, 3)), wanted)


def test_files_and_layouts_tell_the_form(rule, tmp_path):
    network, x = drawn(rule), images()
    for task in ("one", "two"):
        save_task(network, task, tmp_path / task)
        fresh = masked(rule)
        load_shared(fresh, shared_state(network))
        load_task_file(fresh, tmp_path / task)
        assert torch.equal(output_of(fresh, task, x), output_of(network, task, x))
    assert any(key.endswith("bits") for key in read_tensors(tmp_path / "one")[0])
    grown = masked(rule)
    restore_layout(grown, task_layout(network))
    grown.load_state_dict(network.state_dict())
    assert all(mask.scores is not None and mask.bits is None for mask in own_transforms(grown, "two").values())
    assert all(mask.scores is None and mask.bits is not None for mask in own_transforms(grown, "one").values())
    assert torch.equal(output_of(grown, "one", x), output_of(network, "one", x))
    other = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    insert_adapters(other, AdapterConfig(kind="mask"))
    with pytest.raises(UserError, match="another base"):
        load_task_file(other, tmp_path / "one")


def test_scores_train_and_finished_masks_do_not_move(rule):
    network, x = drawn(rule), images()
    one = {key: tensor.clone() for key, tensor in task_state(network, "one").items()}
    scores = {key: t.clone() for key, t in task_state(network, "two").items() if key.endswith("scores")}
    train(network, "two", x)
    assert all(torch.equal(tensor, one[key]) for key, tensor in task_state(network, "one").items())
    assert not any(torch.equal(task_state(network, "two")[key], tensor) for key, tensor in scores.items())


def test_merged_and_side_by_side_masks_are_plain_layers(rule):
    network, x = drawn(rule).double(), images().double()
    merged = merge_task(network, "one")
    assert torch.allclose(merged(x), output_of(network, "one", x), rtol=0, atol=1e-9)
    assert not any(type(module).__module__.startswith("eftgan") for module in merged.modules())
    for task, answer in zip(("one", "two"), Together(network, ["one", "two"])(x), strict=True):
        assert torch.allclose(answer, output_of(network, task, x), rtol=0, atol=1e-9)


def test_growth_counts_bits_where_there_are_no_parameters(rule):
    planned = growth_of(small_cnn(), AdapterConfig(kind="mask", heads=("7",), options=RULES[rule]), (3, 8, 8))
    assert (planned.adapter_parameters, planned.adapter_bits) == (0, 216 + 216 + 1152)
    assert planned.parameter_growth == (216 + 216 + 1152) / 32 / planned.base_parameters
    assert "bits of masks" in format_growth(planned)
    network = drawn(rule)
    one = growth(network, (3, 8, 8), "one")
    assert one == planned
    assert growth(network, (3, 8, 8), "two").adapter_bits == planned.adapter_bits
    norm = 4 * 8 * 4 + 8  # four numbers a channel and a counter
    head = 4 * (6 * 5 + 5)
    assert one.bytes_task == one.adapter_bits // 8 + norm + head


def test_a_fused_upsampling_follows_the_mask():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
    insert_adapters(network, AdapterConfig(kind="mask"))
    for task in ("one", "two"):
        add_task(network, task)
        for mask in own_transforms(network, task).values():
            mask.begin()
            nn.init.normal_(mask.scores, 0.006, 0.01)
            mask.finish()
    x = images()
    before = [output_of(network, task, x) for task in ("one", "two")]
    assert fuse_upsampling(network)
    with torch.no_grad():
        for task, expected in zip(("one", "two") * 3, before * 3, strict=True):
            with using_task(network, task):
                assert torch.allclose(network.eval()(x), expected, atol=1e-6)
