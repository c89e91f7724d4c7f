"""StackGAN-v2: published sizes, shapes of every stage, and an initialisation that a seed decides."""

import pytest
import torch
from torch import fx, nn

from eftgan.models.gans.stackgan import Discriminator, Generator, StackGan, init_weights

SMALL = StackGan(stages=3, base_size=32, ngf=8, ndf=4, z_dim=10)


def count(*networks: nn.Module) -> int:
    return sum(p.numel() for network in networks for p in network.parameters())


@pytest.mark.parametrize(("stages", "total"), [(1, 18_647_233), (3, 103_424_403)])
def test_parameters_of_generator_and_discriminators(stages, total):
    cfg = StackGan(stages=stages)
    with torch.device("meta"):
        networks = [Generator(cfg), *(Discriminator(size, cfg.ndf) for size in cfg.sizes)]
    assert count(*(init_weights(network) for network in networks)) == total


def test_generator_of_three_stages_alone():
    with torch.device("meta"):
        assert count(Generator(StackGan(stages=3))) == 16_472_208


@pytest.mark.parametrize("base_size", [32, 64])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_generator_gives_one_image_per_stage(base_size, stages):
    cfg = StackGan(stages=stages, base_size=base_size, ngf=4, z_dim=6)
    images = Generator(cfg)(torch.randn(2, 6))
    assert cfg.sizes == [base_size, 2 * base_size, 4 * base_size][:stages]
    assert [image.shape for image in images] == [(2, 3, size, size) for size in cfg.sizes]
    assert all(image.abs().max() <= 1 for image in images)


def test_width_and_size_of_every_hidden_map():
    shapes = {}
    generator = Generator(SMALL)
    for name, module in generator.named_modules():
        module.register_forward_hook(lambda _m, _x, y, name=name: shapes.setdefault(name, y))
    generator(torch.randn(2, 10))
    assert shapes["stem"].shape == (2, 64 * 16)  # ngf * 8 channels of 4x4
    expected = {
        "upsample.0": (2, 32, 8, 8),
        "upsample.1": (2, 16, 16, 16),
        "upsample.2": (2, 8, 32, 32),
        "refine.0.joint": (2, 8, 32, 32),
        "refine.0.residual": (2, 8, 32, 32),
        "refine.0": (2, 4, 64, 64),
        "refine.1": (2, 2, 128, 128),
    }
    assert {name: tuple(shapes[name].shape) for name in expected} == expected


@pytest.mark.parametrize(
    ("size", "widths"),
    [
        (32, [4, 8, 16]),
        (64, [4, 8, 16, 32]),
        (128, [4, 8, 16, 32, 64, 32]),
        (256, [4, 8, 16, 32, 64, 128, 64, 32]),
    ],
)
def test_discriminator_widths_and_logits(size, widths):
    network = Discriminator(size, ndf=4)
    convs = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m is not network.logits]
    assert [conv.out_channels for conv in convs] == widths
    assert sum(isinstance(m, nn.BatchNorm2d) for m in network.modules()) == len(widths) - 1
    assert [name for name, _ in network.named_parameters() if "logits" in name][-1] == "logits.bias"
    assert all(conv.bias is None for conv in convs)
    assert network(torch.randn(2, 3, size, size)).shape == (2,)


def test_discriminator_refuses_images_of_another_size():
    with pytest.raises(RuntimeError):
        Discriminator(32, ndf=2)(torch.randn(2, 3, 64, 64))


def test_both_networks_trace_to_the_same_function():
    generator = init_weights(Generator(SMALL)).eval()
    z = torch.randn(2, 10)
    images = generator(z)
    traced = fx.symbolic_trace(generator)
    assert all(torch.equal(a, b) for a, b in zip(images, traced(z), strict=True))
    assert len(traced(z[:1])) == 3  # the trace is not tied to a batch size
    discriminator = Discriminator(32, 4).eval()
    assert torch.equal(fx.symbolic_trace(discriminator)(images[0]), discriminator(images[0]))


def test_initialisation_depends_on_the_generator_alone():
    def build(seed: int) -> dict[str, torch.Tensor]:
        network = init_weights(Generator(SMALL), torch.Generator().manual_seed(seed))
        return network.state_dict()

    first, again, other = build(1), build(1), build(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["stem.0.weight"], other["stem.0.weight"])


def test_initial_weights_are_orthogonal_and_biases_zero():
    network = init_weights(Discriminator(32, 8), torch.Generator().manual_seed(0))
    for conv in (m for m in network.modules() if isinstance(m, nn.Conv2d)):
        rows = conv.weight.detach().flatten(1)
        torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), atol=1e-5, rtol=0)
    norm = network.down[2][1]
    assert 0 < norm.weight.sub(1).abs().max() < 0.12
    assert norm.bias.abs().max() == 0
    assert network.logits.bias.item() == 0


@pytest.mark.parametrize("wrong", [{"stages": 4}, {"base_size": 48}, {"ngf": 6, "stages": 3}, {"z_dim": 0}])
def test_impossible_shapes_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StackGan(**wrong)
