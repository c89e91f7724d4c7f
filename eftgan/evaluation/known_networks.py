"""The growth of the networks that this package knows by name."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import torch

from eftgan.adapters import AdapterConfig
from eftgan.adapters.transforms import Option
from eftgan.errors import UserError
from eftgan.evaluation.growth import Growth, growth_of, total_growth
from eftgan.models.classifiers import build_classifier, head_name
from eftgan.models.gans.stackgan import Discriminator, Generator, StackGan

USUAL_SIZES = {"alexnet": 224, "vgg16_tiny": 64}


def stackgan_growth(config: StackGan, adapters: AdapterConfig) -> Growth:
    """Generator and discriminators together, as the paper counts; their logits layers are per-task heads."""
    with torch.device("meta"):
        generator = Generator(config)
        discriminators = {size: Discriminator(size, config.ndf) for size in config.sizes}
    growths = {"generator": growth_of(generator, adapters, (config.z_dim,))}
    with_logits = dataclasses.replace(adapters, heads=("logits",))
    for size, network in discriminators.items():
        growths[f"discriminator{size}"] = growth_of(network, with_logits, (3, size, size))
    return total_growth(growths)


def classifier_growth(
    name: str,
    classes: int,
    a: int,
    b: int,
    mode: Literal["serial", "parallel"] = "serial",
    exclude: Sequence[str] = (),
    size: int | None = None,
    *,
    kind: str = "eft",
    options: Mapping[str, Option] | None = None,
) -> Growth:
    """A classifier by its name, its head wholly per task."""
    network = build_classifier(name, classes)
    size = size or (224 if name.startswith("torchvision:") else USUAL_SIZES.get(name, 32))
    if size < 8:
        raise UserError(f"images of {size} pixels are too small")
    heads = (head_name(network),)
    config = AdapterConfig(a, b, mode, heads=heads, exclude=tuple(exclude), kind=kind, options=dict(options or {}))
    return growth_of(network, config, (3, size, size))
