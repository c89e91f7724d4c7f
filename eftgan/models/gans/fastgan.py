"""FastGAN (Liu et al., ICLR 2021), made for few images: skip-layer excitation, and a discriminator that also learns to
draw what it has seen.

Smaller than published where that serves a comparison: the noise that the authors add inside the generator is left out,
since samples must follow from z alone, the discriminator gives one logit per image, and it redraws whole images only,
measured by absolute differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeVar, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm
from typing_extensions import Doc

from eftgan.models.gans.base import DISCRIMINATOR, GanFamily

SEED_SIZE = 4
SEEN_SIZE = 8  # side of the map that images are drawn again from
WIDTHS = {4: 16, 8: 8, 16: 4, 32: 2, 64: 2, 128: 1, 256: 0.5}  # by side of the map, in units of ngf or ndf
ITERATIONS = 15  # of the power method at the start, as torch does them

Conv = TypeVar("Conv", nn.Conv2d, nn.ConvTranspose2d)


@dataclass(frozen=True, kw_only=True)
class FastGan(GanFamily):
    """The shape of the networks; the same for every task of a run."""

    title: ClassVar[str] = "FastGAN"
    adversarial: ClassVar[str] = "hinge"
    reconstruction: ClassVar[str] = "l1"

    name: Literal["fastgan"] = "fastgan"
    size: Annotated[int, Doc("pixels: 32, 64, 128 or 256")] = 64
    ngf: Annotated[int, Doc("width of the generator, in units of a map of 128 pixels")] = 64
    ndf: Annotated[int, Doc("width of the discriminator, in the same units")] = 64
    z_dim: Annotated[int, Doc("length of the noise")] = 256
    spectral_norm: Annotated[
        Literal["both", "discriminator", "none"],
        Doc("which networks have it; adapters that change a weight (lora, ...) need a generator without"),
    ] = "both"

    def __post_init__(self) -> None:
        if self.size not in list(WIDTHS)[3:]:
            raise ValueError(f"size must be 32, 64, 128 or 256, not {self.size}")
        if min(self.ngf, self.ndf, self.z_dim) < 1:
            raise ValueError("ngf, ndf and z_dim must be at least 1")
        if self.size == 256 and self.ngf % 2:
            raise ValueError(f"ngf must be even for 256 pixels, not {self.ngf}")

    @property
    def sizes(self) -> list[int]:
        return [self.size]

    def generator(self) -> Generator:
        return Generator(self)

    def discriminators(self) -> dict[str, nn.Module]:
        return {f"{DISCRIMINATOR}{self.size}": Discriminator(self)}

    def initialise(self, network: nn.Module, stream: torch.Generator) -> None:
        """Weights N(0, 0.02), BatchNorm weights N(1, 0.02), biases 0; spectral norms begin from the stream too."""
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.02, generator=stream)
            elif isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                _initialise(module, stream)

    def describe(self) -> str:
        return f"{super().describe()}, ngf {self.ngf}, ndf {self.ndf}"


@torch.no_grad()
def _initialise(conv: nn.Conv2d | nn.ConvTranspose2d, stream: torch.Generator) -> None:
    weights = dict(conv.named_parameters())
    normalised = parametrize.is_parametrized(conv)
    weight = weights["parametrizations.weight.original" if normalised else "weight"]
    nn.init.normal_(weight, 0.0, 0.02, generator=stream)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    if normalised:
        for vector in conv.buffers():
            vector.normal_(generator=stream)
        for _ in range(ITERATIONS):
            _ = conv.weight  # in train mode each look at it is a step of the power method


def width_at(side: int, base: int) -> int:
    """Channels of a map."""
    return int(base * WIDTHS[side])


class Generator(nn.Module):
    """Noise (B, z_dim) -> one batch of images in [-1, 1], in a list."""

    def __init__(self, cfg: FastGan) -> None:
        super().__init__()
        normed = cfg.spectral_norm == "both"
        sides = [side for side in WIDTHS if side <= cfg.size]
        width = {side: width_at(side, cfg.ngf) for side in sides}
        seed = nn.ConvTranspose2d(cfg.z_dim, 2 * width[SEED_SIZE], SEED_SIZE, bias=False)
        self.seed = nn.Sequential(_normed(seed, normed), nn.BatchNorm2d(2 * width[SEED_SIZE]), nn.GLU(dim=1))
        # Every other block has a second convolution, as published.
        self.blocks = nn.ModuleList(
            upsample_block(width[side // 2], width[side], normed, twice=index % 2 == 0)
            for index, side in enumerate(sides[1:])
        )
        self.sources = {side: source_of(side, cfg.size) for side in sides if source_of(side, cfg.size)}
        self.excitations = nn.ModuleDict(
            {str(side): Excitation(width[source], width[side], normed) for side, source in self.sources.items()}
        )
        self.image = nn.Sequential(_normed(conv3x3(width[cfg.size], 3), normed), nn.Tanh())

    def forward(self, z: Tensor) -> list[Tensor]:
        side, h = SEED_SIZE, self.seed(z[:, :, None, None])  # (B, 16 ngf, 4, 4)
        maps = {side: h}
        for block in self.blocks:
            side, h = 2 * side, block(h)  # (B, width, side, side)
            if side in self.sources:
                h = self.excitations[str(side)](maps[self.sources[side]], h)
            maps[side] = h
        return [self.image(h)]


def source_of(side: int, size: int) -> int:
    """The side of the map that gates a finer one: a sixteenth of it; in a generator of 32 pixels an eighth. 0: none."""
    if side >= 16 * SEED_SIZE:
        return side // 16
    return SEED_SIZE if side == size else 0


class Excitation(nn.Module):
    """Skip-layer excitation: a coarse map (B, c, s, s) gates the channels of a fine one (B, k, S, S)."""

    def __init__(self, coarse: int, fine: int, normed: bool) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(4),
            _normed(nn.Conv2d(coarse, fine, 4, bias=False), normed),
            nn.SiLU(),
            _normed(nn.Conv2d(fine, fine, 1, bias=False), normed),
            nn.Sigmoid(),
        )

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return fine * self.gate(coarse)


class Discriminator(nn.Module):
    """Images (B, 3, size, size) -> logits (B,); if asked also the images in half the size, drawn from what it saw."""

    def __init__(self, cfg: FastGan) -> None:
        super().__init__()
        normed = cfg.spectral_norm != "none"
        sides = [side for side in reversed(WIDTHS) if side < cfg.size]  # size/2, ..., 4
        width = {side: width_at(side, cfg.ndf) for side in sides}
        first = nn.Conv2d(3, width[sides[0]], 4, stride=2, padding=1, bias=False)
        self.read = nn.Sequential(_normed(first, normed), leaky_relu())
        downs = [DownBlock(width[2 * side], width[side], normed) for side in sides[1:]]
        self.down = nn.Sequential(*downs[:-1])  # (B, 8 ndf, 8, 8)
        self.last = downs[-1]  # (B, 16 ndf, 4, 4)
        self.logits = nn.Conv2d(width[SEED_SIZE], 1, SEED_SIZE, bias=False)
        finer = [side for side in reversed(sides) if side > SEEN_SIZE]  # 16, ..., size/2
        self.draw = nn.Sequential(
            *(upsample_block(width[side // 2], width[side], normed) for side in finer),
            _normed(conv3x3(width[sides[0]], 3), normed),
            nn.Tanh(),
        )

    @overload
    def forward(self, x: Tensor) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, reconstruct: Literal[True]) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, reconstruct: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        seen = self.down(self.read(x))
        logits = self.logits(self.last(seen)).reshape(x.size(0))
        return (logits, self.draw(seen)) if reconstruct else logits


class DownBlock(nn.Module):
    """(B, c, s, s) -> (B, k, s/2, s/2): the mean of a way of two convolutions and one that only averages."""

    def __init__(self, inputs: int, outputs: int, normed: bool) -> None:
        super().__init__()
        halving = nn.Conv2d(inputs, outputs, 4, stride=2, padding=1, bias=False)
        self.convolved = nn.Sequential(
            *(_normed(halving, normed), nn.BatchNorm2d(outputs), leaky_relu()),
            *(_normed(conv3x3(outputs, outputs), normed), nn.BatchNorm2d(outputs), leaky_relu()),
        )
        self.averaged = nn.Sequential(
            nn.AvgPool2d(2),
            *(_normed(nn.Conv2d(inputs, outputs, 1, bias=False), normed), nn.BatchNorm2d(outputs), leaky_relu()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.convolved(x) + self.averaged(x)) / 2


def upsample_block(inputs: int, outputs: int, normed: bool, twice: bool = False) -> nn.Sequential:
    """(B, c, s, s) -> (B, k, 2s, 2s), gated."""
    layers: list[nn.Module] = [nn.Upsample(scale_factor=2, mode="nearest")]
    for channels in (inputs, outputs) if twice else (inputs,):
        layers += [_normed(conv3x3(channels, 2 * outputs), normed), nn.BatchNorm2d(2 * outputs), nn.GLU(dim=1)]
    return nn.Sequential(*layers)


def conv3x3(inputs: int, outputs: int) -> nn.Conv2d:
    """Same-size convolution; BatchNorm or tanh follows, so it has no bias."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


def leaky_relu() -> nn.LeakyReLU:
    """The discriminator's activation."""
    return nn.LeakyReLU(0.2, inplace=True)


def _normed(conv: Conv, normed: bool) -> Conv:
    return cast(Conv, spectral_norm(conv)) if normed else conv
