"""What a family of GANs must offer to be trained, sampled, measured and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

DISCRIMINATOR = "discriminator"  # how the role of every discriminator begins


@dataclass(frozen=True, kw_only=True)
class GanFamily:
    """The shape of a generator and its discriminators; a subclass's fields are the keys of the config."""

    title: ClassVar[str]  # what people call it
    adversarial: ClassVar[str] = "logistic"  # the loss of generator and discriminators, by its name in gan/losses.py
    regularisers: ClassVar[tuple[str, ...]] = ()  # further losses of the generator, by their names there
    reconstruction: ClassVar[str] = ""  # the loss, by its name there, of discriminators that draw what they saw
    heads: ClassVar[tuple[str, ...]] = ("logits",)  # a discriminator's layers that are wholly per task

    name: str
    z_dim: int

    @property
    def sizes(self) -> list[int]:
        """Sides of the images that the generator draws, coarse to fine."""
        raise NotImplementedError

    def generator(self) -> nn.Module:
        """Noise (B, z_dim) -> one batch of images in [-1, 1] for each of `sizes`."""
        raise NotImplementedError

    def discriminators(self) -> dict[str, nn.Module]:
        """By role ("discriminator64"), one for each of `sizes`: images -> logits (B,); positive means real.

        With a `reconstruction`, discriminator(images, reconstruct=True) gives the logits and the images, in any size.
        """
        raise NotImplementedError

    def initialise(self, network: nn.Module, stream: torch.Generator) -> None:
        """Give a generator or discriminator its first weights, drawn from the stream alone."""
        raise NotImplementedError

    def load_published(self, network: nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Take over weights that others have published for this family."""
        network.load_state_dict(state)

    def example(self, role: str) -> tuple[int, ...]:
        """The shape of one input of the network in that role."""
        if not role.startswith(DISCRIMINATOR):
            return (self.z_dim,)
        size = self.sizes[list(self.discriminators()).index(role)]
        return (3, size, size)

    def describe(self) -> str:
        """One line for people."""
        return f"{self.title}, sizes {self.sizes}"
