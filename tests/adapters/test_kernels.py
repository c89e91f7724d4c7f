"""Kinds that give a task another weight, and CAM-GAN's branch: the formulas by hand, their start, what they refuse."""

import math

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters, merge_task, task_state, train_only
from eftgan.adapters.transforms.kernel import Kernel
from eftgan.adapters.transforms.residual import Branched


def one_layer(layer: nn.Module, kind: str, init: str = "previous", **options) -> tuple[nn.Module, nn.Module]:
    """A network of one layer with one task, and its transform."""
    network = nn.Sequential(layer)
    insert_adapters(network, AdapterConfig(kind=kind, options=options))
    add_task(network, "one", init)
    return network, network[0].tasks["t001"]


@torch.no_grad()
def put(tensor: torch.Tensor, values: list) -> None:
    tensor.copy_(torch.tensor(values, dtype=tensor.dtype).view_as(tensor))


def test_modulation_gives_the_pattern_another_mean_and_scale():
    network, task = one_layer(nn.Conv1d(1, 1, 2, bias=False), "adafm")
    put(network[0].layer.weight, [1, 3])  # M = 2, S = sqrt 2, pattern (-0.7071, 0.7071)
    assert task.pattern(network[0].layer.weight).flatten().tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])
    put(task.g, [2**0.5])  # gamma = 2 S
    put(task.h, [1])  # beta = 3
    assert task.weight(network[0].layer.weight).flatten().tolist() == pytest.approx([1, 5])
    put(network[0].layer.weight, [4, 4])  # no pattern
    weight = task.weight(network[0].layer.weight)
    assert weight.flatten().tolist() == [5, 5]
    weight.sum().backward()
    assert network[0].layer.weight.grad.flatten().tolist() == pytest.approx([1, 1], abs=3)  # finite


def test_modulation_of_a_linear_layer_is_over_its_inputs():
    network, task = one_layer(nn.Linear(2, 2, bias=False), "adafm", rank=5)
    put(network[0].layer.weight, [1, 3, 0, 2])
    put(task.g, [2**0.5, 0])
    put(task.h, [1, -1])
    assert task.weight(network[0].layer.weight).flatten().tolist() == pytest.approx([1, 5, -1, 1])
    assert sum(p.numel() for p in task.parameters()) == 3 * 2


def test_a_convolution_of_one_tap_has_no_pattern_and_stays_shared():
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3))
    insertion = insert_adapters(network, AdapterConfig(kind="adafm"))
    assert insertion.transforms == ["1"]
    assert "neither mean nor deviation" in insertion.shared["0"]


@pytest.mark.parametrize("kind", ["adafm", "lora", "llora", "left"])
def test_linear_layers_before_a_batchnorm_stay_shared_as_with_eft(kind):
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    assert insert_adapters(network, AdapterConfig(kind=kind)).transforms == ["2"]


@pytest.mark.parametrize("kind", ["lora", "llora", "left"])
def test_a_bias_goes_wherever_no_batchnorm_of_the_task_would_undo_it(kind):
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3, bias=False)
    )
    insert_adapters(network, AdapterConfig(kind=kind))
    add_task(network, "one")
    assert network[0].tasks["t001"].own_bias is None
    x = torch.randn(2, 3, 8, 8)
    before = network.eval()(x)
    put(network[3].tasks["t001"].own_bias, [1, 2, 3])
    torch.testing.assert_close(network(x) - before, torch.tensor([1.0, 2, 3]).view(1, 3, 1, 1).expand_as(before))
    plain = nn.Sequential(nn.Conv2d(3, 4, 3))
    insert_adapters(plain, AdapterConfig(kind=kind, bias=False))
    add_task(plain, "one")
    assert plain[0].tasks["t001"].own_bias is None


def test_low_rank_adds_the_product_of_its_factors():
    network, task = one_layer(nn.Conv1d(1, 2, 2, bias=False), "lora", alpha=0.5)
    put(network[0].layer.weight, [10, 10, 10, 10])
    put(task.b, [1, 2])
    put(task.a, [1, -1])
    assert task.weight(network[0].layer.weight).tolist() == [[[10.5, 9.5]], [[11, 9]]]


def test_low_rank_taps_add_the_sum_over_both_ranks():
    network, task = one_layer(nn.Conv1d(2, 2, 2, bias=False), "llora", rank=2)
    put(network[0].layer.weight, [0] * 8)
    put(task.a, [1, 2, 0, 1])  # (input, rank)
    put(task.b, [1, 3, 0, 1])  # (output, rank)
    put(task.s, [1, 0, 0, 1, 2, 0, 0, -1])  # S[0,0] = (1, 0), S[0,1] = (0, 1), S[1,0] = (2, 0), S[1,1] = (0, -1)
    # B S of the first output: a = 0: (1, 3), a = 1: (2, -3); input 0: (1, 3) + 2 (2, -3), input 1: (2, -3)
    # of the second: a = 0: (0, 1), a = 1: (0, -1); input 0: (0, 1) + 2 (0, -1), input 1: (0, -1)
    assert task.weight(network[0].layer.weight).tolist() == [[[5, -3], [2, -3]], [[0, -1], [0, -1]]]


def test_left_multiplies_by_factors_behind_a_relu():
    network, task = one_layer(nn.Conv1d(2, 2, 2, bias=False), "left")
    put(network[0].layer.weight, [1] * 8)
    put(task.u, [1, -2])
    put(task.s, [1, 0.5])
    put(task.v, [2, 3])
    assert task.weight(network[0].layer.weight).tolist() == [[[2, 1], [3, 1.5]], [[0, 0], [0, 0]]]
    put(task.a1, [0, 4])
    put(task.b1, [1, 0.5])  # the second filter: relu(-2 + 4, -1 + 2)
    put(task.a2, [10, 0])
    put(task.b2, [1, -1])
    assert task.weight(network[0].layer.weight).tolist() == [[[12, -9], [3, 1.5]], [[14, -8], [6, 3]]]


def test_left_of_a_linear_layer_multiplies_and_adds_a_matrix_of_the_rank():
    network, task = one_layer(nn.Linear(2, 2), "left")
    put(network[0].layer.weight, [1, 2, 3, 4])
    put(task.u, [1, 2])
    put(task.v, [2, 3])
    assert task.weight(network[0].layer.weight).tolist() == [[2, 6], [12, 24]]
    put(task.a2, [1, -1])
    put(task.b2, [10, 20])
    assert task.weight(network[0].layer.weight).tolist() == [[12, 26], [2, 4]]
    network, task = one_layer(nn.Linear(2, 2), "left", rank=2, additive=False)
    put(network[0].layer.weight, [1, 1, 1, 1])
    put(task.u, [1, 0, 0, 1])
    put(task.v, [1, 2, 3, 4])  # (input, rank)
    assert task.weight(network[0].layer.weight).tolist() == [[1, 3], [2, 4]]
    assert sum(p.numel() for p in task.parameters()) == 2 * (2 + 2) + 2  # and the bias


def test_components_of_left_begin_apart_and_all_of_them_learn():
    """In the authors' code all components start alike, so that a rank above 1 is rank 1."""
    torch.manual_seed(0)
    network, task = one_layer(nn.Conv2d(4, 6, 3, padding=1), "left", rank=3)
    x, target = torch.randn(8, 4, 5, 5), torch.randn(8, 6, 5, 5)
    optimizer = torch.optim.Adam(train_only(network, "one"), lr=0.01)
    before = {key: tensor.clone() for key, tensor in task_state(network, "one").items()}
    for _ in range(5):
        optimizer.zero_grad()
        (network(x) - target).square().mean().backward()
        optimizer.step()
    assert torch.linalg.matrix_rank(task.v) == torch.linalg.matrix_rank(task.u) == 3
    for key, tensor in task_state(network, "one").items():
        assert (tensor != before[key]).any()


def test_one_pixel_of_the_squashed_branch_by_hand():
    network, task = one_layer(nn.Conv2d(1, 1, 1, bias=False), "residual")
    put(network[0].layer.weight, [2])
    with torch.no_grad():
        task.features.depth.weight.fill_(0.5)  # beside ws, which is one in the middle
        task.branch.weight[0, 0, 1, 1] = 0.5
    out = network(torch.ones(1, 1, 1, 1))  # F = 2, I = 1
    assert out.item() == pytest.approx(3 + math.tanh(0.5))
    merged = merge_task(network, "one")
    assert isinstance(merged[0], Branched)
    assert merged(torch.ones(1, 1, 1, 1)).item() == pytest.approx(3.4621, abs=1e-4)


def test_the_branch_goes_only_where_it_has_the_layers_size():
    network = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.Conv2d(8, 8, 4, 2, 1))
    insert_adapters(network, AdapterConfig(kind="residual"))
    assert [bank.mode for bank in network] == ["serial", "serial", "both"]


def test_a_merged_branch_is_a_program_for_torch_alone():
    network, task = one_layer(nn.Conv2d(8, 8, 3, padding=1), "residual")
    nn.init.normal_(task.branch.weight)
    merged, x = merge_task(network, "one"), torch.randn(2, 8, 6, 6)
    program = torch.export.export(merged, (x,)).module()
    torch.testing.assert_close(program(x), network(x))


@pytest.mark.parametrize("kind", ["adafm", "lora", "llora", "left"])
def test_the_fixed_start_differs_by_layer_and_a_random_one_by_the_generator(kind):
    def start(name: str, init: str) -> torch.Tensor:
        network = nn.Sequential()
        network.add_module(name, nn.Conv2d(6, 8, 3))
        insert_adapters(network, AdapterConfig(kind=kind, options={"rank": 2}))
        add_task(network, "one", init)
        return torch.cat([tensor.flatten() for tensor in task_state(network, "one").values()])

    assert torch.equal(start("x", "identity"), start("x", "identity"))
    assert not torch.equal(start("x", "identity"), start("y", "identity"))
    assert not torch.equal(start("x", "random"), start("x", "random"))


def test_a_change_is_placed_by_outputs_inputs_and_groups():
    """Output o and input i of a group are found in a transposed convolution's weight where its forward looks."""
    layer = nn.ConvTranspose2d(4, 6, 1, groups=2, bias=False)
    kernel = Kernel("", tuple(layer.weight.shape), outputs=6, groups=2, transposed=True)
    change = (10 * torch.arange(6.0)[:, None] + torch.arange(2.0))[:, :, None]  # (K, c, 1): 10 o + i
    assert kernel.placed(change)[:, :, 0, 0].tolist() == [[0, 10, 20], [1, 11, 21], [30, 40, 50], [31, 41, 51]]
