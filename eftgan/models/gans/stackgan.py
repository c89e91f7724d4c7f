"""StackGAN-v2 (Zhang et al. 2018), unconditional: one generator, one discriminator per stage.

Stage one draws an image of `base_size`; every further stage refines the hidden map and doubles the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Annotated, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.models.gans.base import DISCRIMINATOR, GanFamily

SEED_SIZE = 4  # generators start from, and discriminators end at, a 4x4 map
MAX_HEAD_WIDTH = 8  # in units of ndf: wider maps (128 px and more) come back to this before the logits

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class StackGan(GanFamily):
    """The shape of the networks; the same for every task of a run."""

    title: ClassVar[str] = "StackGAN-v2"
    regularisers: ClassVar[tuple[str, ...]] = ("colour-consistency",)

    name: Literal["stackgan"] = "stackgan"
    stages: Annotated[int, Doc("1 to 3; each further one doubles the size")] = 1
    base_size: Annotated[int, Doc("pixels of the first stage: 32 or 64")] = 64
    ngf: Annotated[int, Doc("width of the generator at the base size")] = 64
    ndf: Annotated[int, Doc("width of the discriminators' first layer")] = 64
    z_dim: Annotated[int, Doc("length of the noise")] = 100

    def __post_init__(self) -> None:
        if self.stages not in (1, 2, 3):
            raise ValueError(f"stages must be 1, 2 or 3, not {self.stages}")
        if self.base_size not in (32, 64):
            raise ValueError(f"base_size must be 32 or 64, not {self.base_size}")
        if min(self.ngf, self.ndf, self.z_dim) < 1:
            raise ValueError("ngf, ndf and z_dim must be at least 1")
        halvings = 2 ** (self.stages - 1)
        if self.ngf % halvings:
            raise ValueError(f"ngf must be a multiple of {halvings} for {self.stages} stages, not {self.ngf}")

    @property
    def sizes(self) -> list[int]:
        return [self.base_size * 2**stage for stage in range(self.stages)]

    def generator(self) -> Generator:
        return Generator(self)

    def discriminators(self) -> dict[str, nn.Module]:
        return {f"{DISCRIMINATOR}{size}": Discriminator(size, self.ndf) for size in self.sizes}

    def initialise(self, network: nn.Module, stream: torch.Generator) -> None:
        init_weights(network, stream)

    def load_published(self, network: nn.Module, state: dict[str, Tensor]) -> None:
        """A checkpoint of the authors' layout, or one with our own names."""
        from eftgan.models.gans.reference import reference_state  # it knows these networks

        if not isinstance(network, Generator | Discriminator):
            raise TypeError(f"{type(network).__name__} is no network of {self.title}")
        ours = network.state_dict().keys() == state.keys()
        network.load_state_dict(state if ours else reference_state(state, network))

    def describe(self) -> str:
        return f"{super().describe()}, ngf {self.ngf}, ndf {self.ndf}"


class Generator(nn.Module):
    """Noise (B, z_dim) -> one image batch per stage, coarse to fine, in [-1, 1]."""

    def __init__(self, cfg: StackGan) -> None:
        super().__init__()
        doublings = int(log2(cfg.base_size / SEED_SIZE))
        seed_width = cfg.ngf * 2**doublings
        seed_values = seed_width * SEED_SIZE**2
        self.stem = nn.Sequential(
            nn.Linear(cfg.z_dim, 2 * seed_values, bias=False),
            nn.BatchNorm1d(2 * seed_values),
            nn.GLU(dim=1),
        )
        self.upsample = nn.Sequential(*(upsample_block(seed_width // 2**i) for i in range(doublings)))
        widths = [cfg.ngf // 2**stage for stage in range(cfg.stages)]
        self.refine = nn.ModuleList(NextStage(width, cfg.z_dim) for width in widths[:-1])
        self.heads = nn.ModuleList(nn.Sequential(conv3x3(width, 3), nn.Tanh()) for width in widths)

    def forward(self, z: Tensor) -> list[Tensor]:
        h = self.stem(z).unflatten(1, (-1, SEED_SIZE, SEED_SIZE))  # (B, ngf * base/4, 4, 4)
        h = self.upsample(h)  # (B, ngf, base, base)
        images = [self.heads[0](h)]
        for refine, head in zip(self.refine, self.heads[1:], strict=True):
            h = refine(h, z)  # (B, ngf/2, 2 base, 2 base), then (B, ngf/4, 4 base, 4 base)
            images.append(head(h))
        return images


class NextStage(nn.Module):
    """Hidden map (B, c, s, s) and noise -> hidden map (B, c/2, 2s, 2s)."""

    def __init__(self, width: int, z_dim: int) -> None:
        super().__init__()
        self.joint = nn.Sequential(*gated_conv(z_dim + width, width))
        self.joint[0].repeated = z_dim  # type: ignore[assignment]  # input channels that are the same at every pixel
        self.residual = nn.Sequential(ResidualBlock(width), ResidualBlock(width))
        self.upsample = upsample_block(width)

    def forward(self, h: Tensor, z: Tensor) -> Tensor:
        tiled = z[:, :, None, None].expand(-1, -1, h.size(2), h.size(3))
        h = self.joint(torch.cat([tiled, h], dim=1))  # (B, z_dim + c, s, s) -> (B, c, s, s)
        return self.upsample(self.residual(h))


class ResidualBlock(nn.Module):
    """(B, c, s, s) -> (B, c, s, s); no activation after the sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(*gated_conv(width, width), conv3x3(width, width), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


class Discriminator(nn.Module):
    """Images (B, 3, size, size) -> logits (B,); positive means real."""

    def __init__(self, size: int, ndf: int) -> None:
        super().__init__()
        halvings = int(log2(size / SEED_SIZE))
        if halvings < 1 or SEED_SIZE * 2**halvings != size:
            raise ValueError(f"a discriminator's size must be 8, 16, 32, ..., not {size}")
        widths = [ndf * 2**i for i in range(halvings)]
        self.down = nn.Sequential(
            # No BatchNorm on the first: it would normalise the colours of a batch away.
            nn.Sequential(conv4x4_stride2(3, ndf), leaky_relu()),
            *(nn.Sequential(conv4x4_stride2(c, 2 * c), nn.BatchNorm2d(2 * c), leaky_relu()) for c in widths[:-1]),
        )  # (B, ndf * size/8, 4, 4)
        wider = [c for c in reversed(widths) if c > MAX_HEAD_WIDTH * ndf]
        self.narrow = nn.Sequential(
            *(nn.Sequential(conv3x3(c, c // 2), nn.BatchNorm2d(c // 2), leaky_relu()) for c in wider)
        )  # (B, at most 8 ndf, 4, 4)
        self.logits = nn.Conv2d(min(widths[-1], MAX_HEAD_WIDTH * ndf), 1, SEED_SIZE, stride=SEED_SIZE)

    def forward(self, x: Tensor) -> Tensor:
        # The reshape also refuses images of another size, which would give several logits each.
        return self.logits(self.narrow(self.down(x))).reshape(x.size(0))


def conv3x3(c_in: int, c_out: int) -> nn.Conv2d:
    """Same-size convolution; BatchNorm or tanh follows, so it has no bias."""
    return nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)


def conv4x4_stride2(c_in: int, c_out: int) -> nn.Conv2d:
    """The discriminator's halving convolution."""
    return nn.Conv2d(c_in, c_out, 4, stride=2, padding=1, bias=False)


def leaky_relu() -> nn.LeakyReLU:
    """The discriminator's activation."""
    return nn.LeakyReLU(0.2, inplace=True)


def gated_conv(c_in: int, c_out: int) -> list[nn.Module]:
    """Convolution to twice the width, halved again by the gate: the generator's activation."""
    return [conv3x3(c_in, 2 * c_out), nn.BatchNorm2d(2 * c_out), nn.GLU(dim=1)]


def upsample_block(width: int) -> nn.Sequential:
    """(B, c, s, s) -> (B, c/2, 2s, 2s)."""
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), *gated_conv(width, width // 2))


def init_weights(network: Network, generator: torch.Generator | None = None) -> Network:
    """Orthogonal weights, BatchNorm weights N(1, 0.02), biases 0; returns the network.

    With a generator (on the network's device) the result depends on nothing else. Parameters on the meta
    device have no values and are left alone.
    """
    for module in network.modules():
        if not isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm1d | nn.BatchNorm2d):
            continue
        if module.weight.is_meta:
            continue
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(module.weight, generator=generator)
        else:
            nn.init.normal_(module.weight, 1.0, 0.02, generator=generator)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    return network
