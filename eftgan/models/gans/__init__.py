"""Families of GANs by name: a new one is one file and one line here."""

from eftgan.models.gans.base import DISCRIMINATOR, GanFamily
from eftgan.models.gans.dcgan import Dcgan
from eftgan.models.gans.fastgan import FastGan
from eftgan.models.gans.stackgan import StackGan

# The `network:` section of a GAN's config: `name` says which family, the other keys are the fields of its class.
GANS: dict[str, type[GanFamily]] = {"stackgan": StackGan, "dcgan": Dcgan, "fastgan": FastGan}

__all__ = ["DISCRIMINATOR", "GANS", "Dcgan", "FastGan", "GanFamily", "StackGan"]
