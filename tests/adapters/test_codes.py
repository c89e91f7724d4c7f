"""Convolutions over a repeated code: the faster form computes the same."""

import copy

import pytest
import torch
from torch import nn

from eftgan.adapters import merge_task
from eftgan.adapters.codes import CodedConv2d, fuse_codes
from eftgan.models.gans import StackGan


def coded(code: int, width: int, out: int, bias: bool = False) -> nn.Conv2d:
    torch.manual_seed(0)
    conv = nn.Conv2d(code + width, out, 3, padding=1, bias=bias).double()
    conv.repeated = code
    return conv


def map_with_code(code: int, width: int, height: int, across: int, batch: int = 2) -> torch.Tensor:
    tiled = torch.randn(batch, code, 1, 1).double().expand(-1, -1, height, across)
    return torch.cat([tiled, torch.randn(batch, width, height, across).double()], dim=1)


@pytest.mark.parametrize(("height", "across"), [(3, 3), (4, 7), (5, 3), (16, 16), (2, 5), (1, 1)])
@pytest.mark.parametrize("bias", [False, True])
def test_outputs_and_gradients_are_the_plain_ones(height, across, bias):
    plain = coded(5, 2, 4, bias)
    fast = copy.deepcopy(plain)
    fuse_codes(fast)
    assert type(fast) is CodedConv2d
    results = []
    for conv in (plain, fast):
        torch.manual_seed(1)
        code, own = torch.randn(2, 5).double().requires_grad_(), torch.randn(2, 2, height, across).double()
        x = torch.cat([code[:, :, None, None].expand(-1, -1, height, across), own], dim=1)
        y = conv(x)
        (y * torch.randn_like(y)).sum().backward()
        results.append([y, code.grad, *(p.grad for p in conv.parameters())])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_channels_last_and_float32():
    plain = coded(5, 3, 4).float().to(memory_format=torch.channels_last)
    fast = copy.deepcopy(plain)
    fuse_codes(fast)
    x = map_with_code(5, 3, 8, 8).float().contiguous(memory_format=torch.channels_last)
    assert torch.allclose(fast(x), plain(x), atol=1e-5)


@pytest.mark.parametrize("change", [{"stride": 2}, {"padding": 0}, {"padding_mode": "reflect"}])
def test_other_convolutions_stay_as_they_are(change):
    conv = nn.Conv2d(8, 4, 3, **{"padding": 1, **change})
    conv.repeated = 5
    fuse_codes(conv)
    assert type(conv) is nn.Conv2d


def test_unmarked_ones_stay_as_they_are():
    conv = nn.Conv2d(8, 4, 3, padding=1)
    fuse_codes(conv)
    assert type(conv) is nn.Conv2d


def test_the_stages_of_a_generator_and_its_merged_form_have_it(make_adapted):
    family = StackGan(stages=3, base_size=32, ngf=8, ndf=4, z_dim=6)
    generator = make_adapted(family.generator())
    z = torch.randn(2, 6)
    wanted = generator(z)
    fast = copy.deepcopy(generator)
    fuse_codes(fast)
    keys = generator.state_dict().keys()
    assert fast.state_dict().keys() == keys
    merged = merge_task(generator, "t1")
    for network in (fast, merged):
        assert sum(isinstance(module, CodedConv2d) for module in network.modules()) == 2
        for image, expected in zip(network(z), wanted, strict=True):
            assert torch.allclose(image, expected, atol=1e-4)


@pytest.fixture
def make_adapted():
    """A network with one task, in eval mode, its transforms not neutral."""
    from eftgan.adapters import AdapterConfig, add_task, insert_adapters

    def make(network: nn.Module) -> nn.Module:
        insert_adapters(network, AdapterConfig(a=2, b=2))
        torch.manual_seed(3)
        add_task(network, "t1", "random")
        return network.eval().requires_grad_(False)

    return make
