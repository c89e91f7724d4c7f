"""Equations that hold for all channel counts, group sizes and strides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from eftgan.adapters import AdapterConfig, ConvTransform, add_task, insert_adapters, merge_task, using_task
from eftgan.adapters.transforms import group_count, largest_divisor, regroup

CHANNELS = st.integers(1, 24)
SIZES = st.integers(0, 30)
FEW = settings(max_examples=40, deadline=None)


def random_transform(seed: int, *args, **options) -> ConvTransform:
    transform = ConvTransform(*args, **options).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in transform.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return transform


@FEW
@given(CHANNELS, SIZES, SIZES, st.booleans(), st.integers(0, 99))
def test_serial_transforms_run_as_their_two_convolutions_say(channels, a, b, bias, seed):
    if a == b == 0:
        a = 1
    transform = random_transform(seed, channels, channels, a, b, bias=bias)
    x = torch.randn(2, channels, 5, 4, dtype=torch.float64)
    out = transform(x)
    apart = sum(conv(x) for conv in transform.convolutions)
    assert out.shape == x.shape
    assert torch.allclose(out, apart, rtol=0, atol=1e-9)
    weight, bias_sum, groups = transform.fused_parameters()
    exact = F.conv2d(x, weight, bias_sum, padding=weight.shape[-1] // 2, groups=groups)
    assert torch.allclose(exact, apart, rtol=0, atol=1e-9)


@FEW
@given(CHANNELS, CHANNELS, SIZES, SIZES, st.integers(1, 3), st.integers(0, 99))
def test_parallel_transforms_run_as_their_two_convolutions_say(c_in, c_out, a, b, stride, seed):
    if a == b == 0:
        b = 1
    transform = random_transform(seed, c_in, c_out, a, b, parallel=True, stride=(stride, stride))
    x = torch.randn(2, c_in, 7, 6, dtype=torch.float64)
    assert torch.allclose(transform(x), transform.forward_separate(x), rtol=0, atol=1e-9)
    for conv, size in ((transform.spatial, a), (transform.depth, b)):
        assert conv is None or c_in % conv.groups == c_out % conv.groups == 0
        assert conv is None or conv.groups <= max(c_out // size, 1)


@FEW
@given(st.integers(1, 200), st.integers(1, 300))
def test_effective_group_sizes_are_the_largest_divisors_within_the_limit(channels, size):
    effective = largest_divisor(channels, size)
    assert channels % effective == 0
    assert effective <= size
    assert not any(channels % d == 0 for d in range(effective + 1, min(size, channels) + 1))
    assert channels // group_count(channels, channels, size, parallel=False) == effective


@FEW
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 3]))
def test_fewer_groups_can_write_the_same_convolution(new_groups, ratio, c_out, c_in, kernel):
    groups = new_groups * ratio
    weight = torch.randn(groups * c_out, c_in, kernel, kernel, dtype=torch.float64)
    wide = regroup(weight, groups, new_groups)
    x = torch.randn(2, groups * c_in, 4, 4, dtype=torch.float64)
    assert torch.equal(wide.count_nonzero(), weight.count_nonzero())
    expected = F.conv2d(x, weight, padding=kernel // 2, groups=groups)
    assert torch.allclose(F.conv2d(x, wide, padding=kernel // 2, groups=new_groups), expected, rtol=0, atol=1e-12)


@FEW
@given(
    mode=st.sampled_from(["serial", "parallel"]),
    groups=st.integers(1, 3),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    sizes=st.tuples(st.integers(0, 12), st.integers(1, 12)),
    stride=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_any_convolution_starts_neutral_and_merges(mode, groups, widths, sizes, stride, seed):
    layer = nn.Conv2d(groups * widths[0], groups * widths[1], 3, stride, 1, groups=groups)
    network = nn.Sequential(layer).double()
    x = torch.randn(2, groups * widths[0], 6, 6, dtype=torch.float64)
    with torch.no_grad():
        base = network(x)
        insert_adapters(network, AdapterConfig(*sizes, mode=mode))
        add_task(network, "one")
        assert torch.equal(network(x), base)
        torch.manual_seed(seed)
        add_task(network, "two", "random")
        with using_task(network, "two"):
            assert torch.allclose(merge_task(network, "two")(x), network(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("a", "b", "channels"), [(8, 16, 64), (16, 8, 64), (4, 6, 12), (5, 50, 20)])
def test_fusing_uses_the_larger_group_size_or_their_common_multiple(a, b, channels):
    weight, _, groups = ConvTransform(channels, channels, a, b).fused_parameters()
    sizes = [largest_divisor(channels, size) for size in (a, b)]
    assert weight.shape[1] == math.lcm(*sizes) == channels // groups


def test_building_a_transform_draws_no_random_numbers():
    state = torch.get_rng_state()
    ConvTransform(8, 8, 4, 2)
    assert torch.equal(torch.get_rng_state(), state)
