"""Reference weights: a state dict with the reference's names and shapes computes the same in our networks.

The forward passes here are written on the reference's names, apart from the networks and the key mapping.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from eftgan.errors import UserError
from eftgan.models.gans.reference import reference_state
from eftgan.models.gans.stackgan import Discriminator, Generator, StackGan

Z, NGF, NDF = 5, 8, 2


class Reference(dict):
    """A state dict that is filled layer by layer, as the reference names them."""

    def conv(self, name: str, *shape: int) -> None:
        self[f"{name}.weight"] = torch.randn(shape) / torch.Size(shape[1:]).numel() ** 0.5

    def norm(self, name: str, width: int) -> None:
        for part in ("weight", "bias", "running_mean"):
            self[f"{name}.{part}"] = torch.randn(width)
        self[f"{name}.running_var"] = torch.rand(width) + 0.5

    def apply_norm(self, name: str, x: Tensor) -> Tensor:
        mean, var, weight, bias = (self[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, var, weight, bias)

    def gated(self, name: str, x: Tensor, conv: int) -> Tensor:
        """conv3x3, BatchNorm, GLU at `name.conv` and `name.conv + 1`."""
        x = F.conv2d(x, self[f"{name}.{conv}.weight"], padding=1)
        return gate(self.apply_norm(f"{name}.{conv + 1}", x))


def gate(x: Tensor) -> Tensor:
    half = x.shape[1] // 2
    return x[:, :half] * torch.sigmoid(x[:, half:])


def generator_state() -> Reference:
    state = Reference()
    wide = NGF * 16
    state.conv("h_net1.fc.0", wide * 32, Z)
    state.norm("h_net1.fc.1", wide * 32)
    for i in range(4):
        width = wide // 2**i
        state.conv(f"h_net1.upsample{i + 1}.1", width, width, 3, 3)
        state.norm(f"h_net1.upsample{i + 1}.2", width)
    state.conv("img_net1.img.0", 3, NGF, 3, 3)
    for net, width in ((2, NGF), (3, NGF // 2)):
        state.conv(f"h_net{net}.jointConv.0", 2 * width, Z + width, 3, 3)
        state.norm(f"h_net{net}.jointConv.1", 2 * width)
        for block in (f"h_net{net}.residual.{r}.block" for r in range(2)):
            state.conv(f"{block}.0", 2 * width, width, 3, 3)
            state.norm(f"{block}.1", 2 * width)
            state.conv(f"{block}.3", width, width, 3, 3)
            state.norm(f"{block}.4", width)
        state.conv(f"h_net{net}.upsample.1", width, width, 3, 3)
        state.norm(f"h_net{net}.upsample.2", width)
        state.conv(f"img_net{net}.img.0", 3, width // 2, 3, 3)
    return state


def generator_forward(state: Reference, z: Tensor) -> list[Tensor]:
    def double(x: Tensor) -> Tensor:
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)

    def image(net: int, h: Tensor) -> Tensor:
        return torch.tanh(F.conv2d(h, state[f"img_net{net}.img.0.weight"], padding=1))

    h = gate(state.apply_norm("h_net1.fc.1", z @ state["h_net1.fc.0.weight"].T)).view(-1, NGF * 16, 4, 4)
    for i in range(1, 5):
        h = state.gated(f"h_net1.upsample{i}", double(h), conv=1)
    images = [image(1, h)]
    for net in (2, 3):
        tiled = z.view(-1, Z, 1, 1).repeat(1, 1, h.shape[2], h.shape[3])
        h = state.gated(f"h_net{net}.jointConv", torch.cat((tiled, h), 1), conv=0)
        for block in (f"h_net{net}.residual.{r}.block" for r in range(2)):
            inner = F.conv2d(state.gated(block, h, conv=0), state[f"{block}.3.weight"], padding=1)
            h = h + state.apply_norm(f"{block}.4", inner)
        h = state.gated(f"h_net{net}.upsample", double(h), conv=1)
        images.append(image(net, h))
    return images


# Name of each convolution, name of its BatchNorm, output width in ndf, kernel.
ENCODER = [("s16.0", None, 1, 4), ("s16.2", "s16.3", 2, 4), ("s16.5", "s16.6", 4, 4), ("s16.8", "s16.9", 8, 4)]
DISCRIMINATORS = {
    64: ENCODER,
    128: [*ENCODER, ("s32.0", "s32.1", 16, 4), ("s32_1.0", "s32_1.1", 8, 3)],
    256: [
        *ENCODER,
        ("s32.0", "s32.1", 16, 4),
        ("s64.0", "s64.1", 32, 4),
        ("s64_1.0", "s64_1.1", 16, 3),
        ("s64_2.0", "s64_2.1", 8, 3),
    ],
}


def discriminator_state(size: int) -> Reference:
    state, c_in = Reference(), 3
    for conv, norm, width, kernel in DISCRIMINATORS[size]:
        state.conv(f"img_code_{conv}", width * NDF, c_in, kernel, kernel)
        if norm:
            state.norm(f"img_code_{norm}", width * NDF)
        c_in = width * NDF
    state.conv("logits.0", 1, c_in, 4, 4)
    state["logits.0.bias"] = torch.randn(1)
    return state


def discriminator_forward(state: Reference, size: int, x: Tensor) -> Tensor:
    for conv, norm, _, kernel in DISCRIMINATORS[size]:
        x = F.conv2d(x, state[f"img_code_{conv}.weight"], stride=2 if kernel == 4 else 1, padding=1)
        x = F.leaky_relu(state.apply_norm(f"img_code_{norm}", x) if norm else x, 0.2)
    return F.conv2d(x, state["logits.0.weight"], state["logits.0.bias"], stride=4).view(-1)


def our_generator() -> Generator:
    return Generator(StackGan(stages=3, ngf=NGF, z_dim=Z)).eval()


@torch.no_grad()
def test_generator_computes_as_the_reference():
    torch.manual_seed(0)
    state, network, z = generator_state(), our_generator(), torch.randn(2, Z)
    network.load_state_dict(reference_state(state, network), strict=True)
    for ours, theirs in zip(network(z), generator_forward(state, z), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [64, 128, 256])
@torch.no_grad()
def test_discriminator_computes_as_the_reference(size):
    torch.manual_seed(0)
    state, network, x = discriminator_state(size), Discriminator(size, NDF).eval(), torch.randn(2, 3, size, size)
    network.load_state_dict(reference_state(state, network), strict=True)
    expected = discriminator_forward(state, size, x)
    torch.testing.assert_close(network(x), expected, atol=1e-4, rtol=1e-4)


def test_data_parallel_prefix_and_batch_counters():
    network = Discriminator(64, NDF)
    state = {f"module.{key}": value for key, value in discriminator_state(64).items()}
    state["module.img_code_s16.3.num_batches_tracked"] = torch.tensor(7)
    renamed = reference_state(state, network)
    assert renamed["down.1.1.num_batches_tracked"] == 7
    assert renamed["down.2.1.num_batches_tracked"] == 0  # absent in old files
    assert renamed["logits.weight"] is state["module.logits.0.weight"]


def test_weights_that_do_not_fit_are_refused_by_name():
    state = discriminator_state(64)
    with pytest.raises(UserError, match=r"lack img_code_s32\.0\.weight.* more"):
        reference_state(state, Discriminator(128, NDF))
    with pytest.raises(UserError, match=r"shape.*img_code_s16\.0\.weight"):
        reference_state(state, Discriminator(64, NDF + 1))
    with pytest.raises(UserError, match=r"hold more.*h_net2"):
        reference_state(generator_state(), Generator(StackGan(ngf=NGF, z_dim=Z)))
