"""DCGAN (Radford et al. 2016): transposed convolutions up from noise, strided ones down to a logit.

Layers have the order and names of PyTorch's DCGAN example (`main.0`, ...), so that its checkpoints, and others of the
same layers under other names, can be the base of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.models.gans.base import DISCRIMINATOR, GanFamily
from eftgan.models.gans.foreign import same_layers

SEED_SIZE = 4


@dataclass(frozen=True, kw_only=True)
class Dcgan(GanFamily):
    """The shape of the networks; the same for every task of a run."""

    title: ClassVar[str] = "DCGAN"

    name: Literal["dcgan"] = "dcgan"
    size: Annotated[int, Doc("pixels: 32, 64 or 128")] = 64
    ngf: Annotated[int, Doc("width of the generator before its last layer")] = 64
    ndf: Annotated[int, Doc("width of the discriminator's first layer")] = 64
    z_dim: Annotated[int, Doc("length of the noise")] = 100

    def __post_init__(self) -> None:
        if self.size not in (32, 64, 128):
            raise ValueError(f"size must be 32, 64 or 128, not {self.size}")
        if min(self.ngf, self.ndf, self.z_dim) < 1:
            raise ValueError("ngf, ndf and z_dim must be at least 1")

    @property
    def sizes(self) -> list[int]:
        return [self.size]

    def generator(self) -> Generator:
        return Generator(self)

    def discriminators(self) -> dict[str, nn.Module]:
        return {f"{DISCRIMINATOR}{self.size}": Discriminator(self)}

    def initialise(self, network: nn.Module, stream: torch.Generator) -> None:
        """Weights N(0, 0.02), BatchNorm weights N(1, 0.02), biases 0."""
        for module in network.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
                mean = 1.0 if isinstance(module, nn.BatchNorm2d) else 0.0
                nn.init.normal_(module.weight, mean, 0.02, generator=stream)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def load_published(self, network: nn.Module, state: dict[str, Tensor]) -> None:
        """A checkpoint of the same layers in the same order, whatever their names."""
        network.load_state_dict(same_layers(state, network))

    def describe(self) -> str:
        return f"{super().describe()}, ngf {self.ngf}, ndf {self.ndf}"


def doublings(size: int) -> int:
    """Layers of stride 2 between the 4x4 map and the image."""
    return int(log2(size / SEED_SIZE))


class Generator(nn.Module):
    """Noise (B, z_dim) -> one batch of images in [-1, 1], in a list."""

    def __init__(self, cfg: Dcgan) -> None:
        super().__init__()
        widths = [cfg.ngf * 2**i for i in reversed(range(doublings(cfg.size)))]  # ngf * size/8, ..., ngf
        layers: list[nn.Module] = [nn.ConvTranspose2d(cfg.z_dim, widths[0], SEED_SIZE, bias=False)]
        for width, narrower in zip(widths, [*widths[1:], 3], strict=True):
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            layers.append(nn.ConvTranspose2d(width, narrower, 4, stride=2, padding=1, bias=False))
        self.main = nn.Sequential(*layers, nn.Tanh())

    def forward(self, z: Tensor) -> list[Tensor]:
        return [self.main(z[:, :, None, None])]  # (B, 3, size, size)


class Discriminator(nn.Module):
    """Images (B, 3, size, size) -> logits (B,); positive means real."""

    def __init__(self, cfg: Dcgan) -> None:
        super().__init__()
        widths = [cfg.ndf * 2**i for i in range(doublings(cfg.size))]
        layers: list[nn.Module] = [_halving(3, cfg.ndf), nn.LeakyReLU(0.2, inplace=True)]
        for width in widths[:-1]:
            layers += [_halving(width, 2 * width), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True)]
        self.main = nn.Sequential(*layers)  # (B, ndf * size/8, 4, 4)
        self.logits = nn.Conv2d(widths[-1], 1, SEED_SIZE, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # The reshape also refuses images of another size, which would give several logits each.
        return self.logits(self.main(x)).reshape(x.size(0))


def _halving(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 4, stride=2, padding=1, bias=False)
