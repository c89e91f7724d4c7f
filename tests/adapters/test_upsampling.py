"""Upsampling and the convolution behind it as one: the same function, found by the shape of a network alone."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from eftgan.adapters import AdapterConfig, Together, add_task, insert_adapters, merge_task, train_only, using_task
from eftgan.adapters.upsampling import UpsampledConv2d, fuse_upsampling, upsampling_kernel
from eftgan.models.gans.stackgan import Generator, StackGan, init_weights


def pair(inputs: int, outputs: int, *, bias: bool = True, dtype=torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), conv).to(dtype)


def answers(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Output, and gradients of input and parameters."""
    x = x.clone().requires_grad_(True)
    out = network(x)
    network.zero_grad()
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    return [out, x.grad, *(p.grad.clone() for p in network.parameters() if p.requires_grad)]


@pytest.mark.parametrize("shape", [(3, 5, 4, 4), (1, 5, 1, 1), (2, 5, 7, 3), (4, 5, 16, 9)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@pytest.mark.parametrize("trains", [True, False])
def test_outputs_and_gradients_are_the_pairs(shape, layout, dtype, tolerance, trains):
    plain = pair(5, 6, dtype=dtype).to(memory_format=layout)
    plain[1].weight.requires_grad_(trains)
    fast = copy.deepcopy(plain)
    assert fuse_upsampling(fast) == ["1"]
    x = torch.randn(shape, dtype=dtype).to(memory_format=layout)
    for ours, theirs in zip(answers(fast, x), answers(plain, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * theirs.abs().max().item())


def test_the_kernel_by_hand():
    weight = torch.arange(9.0).view(1, 1, 3, 3)
    assert upsampling_kernel(weight)[0, 0].tolist() == [
        [8, 15, 13, 6],
        [13, 24, 20, 9],
        [7, 12, 8, 3],
        [2, 3, 1, 0],
    ]


def test_names_parameters_and_state_are_untouched():
    plain = pair(3, 4)
    parameters, keys = dict(plain.named_parameters()), list(plain.state_dict())
    fuse_upsampling(plain)
    assert isinstance(plain[1], UpsampledConv2d)
    assert list(plain.state_dict()) == keys
    assert all(parameter is parameters[name] for name, parameter in plain.named_parameters())


def test_a_kept_kernel_follows_whatever_changes_the_weight():
    fast = pair(3, 4)
    fuse_upsampling(fast)
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    fast.requires_grad_(False)

    def wanted() -> torch.Tensor:
        return F.conv2d(F.interpolate(x, scale_factor=2), fast[1].weight, fast[1].bias, padding=1)

    torch.testing.assert_close(fast(x), wanted())
    fast[1].weight.mul_(2)
    torch.testing.assert_close(fast(x), wanted())
    fast.load_state_dict({key: torch.randn_like(tensor) for key, tensor in fast.state_dict().items()})
    torch.testing.assert_close(fast(x), wanted())
    fast[1].weight.data = torch.randn_like(fast[1].weight)
    torch.testing.assert_close(fast(x), wanted())
    assert copy.deepcopy(fast)[1]._kept is None


class Reused(nn.Module):
    """Somebody else looks at the upsampled map."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.conv = nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = self.up(x)
        return self.conv(large) + large


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(3, 4, 3, padding=1)),
        nn.Sequential(nn.Upsample(scale_factor=3, mode="nearest"), nn.Conv2d(3, 4, 3, padding=1)),
        nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(3, 4, 3)),
        nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        ),
        nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(4, 4, 3, padding=1, groups=2)),
        nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.ReLU(), nn.Conv2d(3, 4, 3, padding=1)),
        Reused(),
    ],
)
def test_whatever_is_not_that_pair_is_left_alone(network):
    assert fuse_upsampling(network) == []


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_training_a_task_on_a_fused_generator_is_training_it_on_the_plain_one(mode):
    family = StackGan(stages=2, base_size=32, ngf=4, z_dim=6)
    z = torch.randn(3, 6, dtype=torch.float64)
    seen = []
    for fast in (False, True):
        generator = init_weights(Generator(family), torch.Generator().manual_seed(1)).double()
        insert_adapters(generator, AdapterConfig(2, 1, mode))
        for task, shared in (("one", True), ("two", False)):
            add_task(generator, task)
            if fast and task == "one":  # whatever task is active
                assert len(fuse_upsampling(generator)) == (4 if mode == "serial" else 0)
            optimizer = torch.optim.SGD(train_only(generator, task, shared=shared), 1e-4)
            for _ in range(2):
                optimizer.zero_grad()
                sum(image.square().sum() for image in generator(z)).backward()
                optimizer.step()
        seen.append(generator)
    plain, fused = seen
    assert list(plain.state_dict()) == list(fused.state_dict())
    for key, tensor in plain.state_dict().items():
        torch.testing.assert_close(fused.state_dict()[key], tensor, rtol=1e-9, atol=1e-9)
    together = Together(fused, ["one", "two"])(z)
    for index, task in enumerate(("one", "two")):
        merged = [merge_task(network, task) for network in seen]
        assert not any(isinstance(module, nn.Upsample | UpsampledConv2d) for m in merged for module in m.modules())
        with torch.no_grad(), using_task(plain.eval(), task):
            for wanted, *found in zip(plain(z), merged[0](z), merged[1](z), together[index], strict=True):
                for images in found:
                    torch.testing.assert_close(images, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["adafm", "lora", "llora", "left"])
def test_a_task_with_a_weight_of_its_own_gives_what_it_gives_on_the_plain_network(kind):
    networks = []
    for fuse in (False, True):
        network = pair(4, 6)
        insert_adapters(network, AdapterConfig(kind=kind, options={"rank": 2}))
        if fuse:
            assert fuse_upsampling(network) == ["1"]
        add_task(network, "one")
        train_only(network, "one")
        with torch.no_grad():
            for parameter in network[1].tasks.parameters():
                parameter.copy_(torch.linspace(-0.5, 1, parameter.numel()).view_as(parameter))
        networks.append(network)
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    for ours, theirs in zip(*(answers(network, x) for network in reversed(networks)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_branch_that_sees_the_input_keeps_the_pair_apart():
    network = pair(4, 6)
    insert_adapters(network, AdapterConfig(kind="residual"))
    assert fuse_upsampling(network) == []
