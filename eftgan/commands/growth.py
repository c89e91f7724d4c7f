"""`eftgan growth`: what one more task costs on the networks that this package knows by name."""

import argparse
import dataclasses
import difflib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.adapters import AdapterConfig
    from eftgan.evaluation.growth import Growth
    from eftgan.models.gans import GanFamily

HELP = "Parameters, FLOPs and bytes that one task adds to a network."
EXAMPLES = """\
eftgan growth --model resnet18 --a 8 --b 16
eftgan growth --model resnet18 --a 8 --b 16 --layers        every layer's effective group sizes
eftgan growth --model torchvision:resnet50 --classes 100
eftgan growth --model stackgan stages=3 --a 32 --b 16       keys of the network, as in a config
eftgan growth --model stackgan --kind lora --rank 32        another kind of transformation
eftgan growth --model stackgan --kind left --option rank=78 --option additive=false"""

USUAL_SIZES = {"alexnet": 224, "vgg16_tiny": 64}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", default="resnet18", help="a classifier, torchvision:NAME, or a GAN: stackgan, dcgan, fastgan"
    )
    parser.add_argument("keys", nargs="*", metavar="key=value", help="a GAN's keys, as in the network: of a config")
    parser.add_argument("--a", type=int, default=8, help="group size of the 3x3 convolution")
    parser.add_argument("--b", type=int, default=16, help="group size of the 1x1 convolution")
    parser.add_argument("--mode", choices=("serial", "parallel"), default="serial", help="behind a layer, or beside it")
    parser.add_argument("--kind", default="eft", help="of the transformations, as adapters.kind in a config")
    parser.add_argument("--rank", type=int, help="of kinds that have one: adafm (0: full), lora, llora, left")
    parser.add_argument(
        "--option", action="append", default=[], metavar="key=value", help="what only this kind knows, as in a config"
    )
    parser.add_argument("--gate", default="", help="behind every layer: channel, which CCLL (--kind ccll) has")
    parser.add_argument(
        "--whole-discriminators", action="store_true", help="a GAN's discriminators train whole: no task keeps them"
    )
    parser.add_argument("--exclude", nargs="*", default=(), help="patterns of layers without adapters, e.g. stem*")
    parser.add_argument("--classes", type=int, help="outputs of a classifier's head (default: 10)")
    parser.add_argument("--size", type=int, help="a classifier's image size (default: the network's usual one)")
    parser.add_argument("--layers", action="store_true", help="show every layer's effective group sizes")


def run(args: argparse.Namespace) -> None:
    """Print the growth table of a network."""
    from eftgan.adapters import AdapterConfig
    from eftgan.evaluation.growth import format_growth
    from eftgan.models.gans import GANS

    options = options_of(args.option) | ({} if args.rank is None else {"rank": args.rank})
    adapters = AdapterConfig(
        args.a, args.b, args.mode, exclude=tuple(args.exclude), kind=args.kind, options=options, gate=args.gate
    )
    if args.model in GANS:
        for option in ("classes", "size"):
            if getattr(args, option) is not None:
                keys = ", ".join(each.name for each in dataclasses.fields(GANS[args.model]) if each.name != "name")
                raise UserError(f"--{option} is for classifiers; {args.model} has the keys {keys}: give key=value")
        found = gan_growth(gan_family(args.model, args.keys), adapters, whole=args.whole_discriminators)
    else:
        if args.whole_discriminators:
            raise UserError(f"--whole-discriminators is for GANs ({', '.join(GANS)})")
        if args.keys:
            raise UserError(f"{args.keys[0]!r}: keys are for GANs ({', '.join(GANS)}); a classifier has --size")
        classes = 10 if args.classes is None else args.classes
        found = classifier_growth(args.model, classes, adapters, args.size)
    print("\n".join([format_growth(found, args.layers), *rounding_note(found, adapters)]))


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """Settings from `key=value` words."""
    from eftgan.config import apply_override

    data: dict[str, Any] = {}
    for word in words:
        apply_override(data, word)
    return data


def gan_family(name: str, words: Sequence[str] = ()) -> "GanFamily":
    """A family of GANs by its name, shaped by `key=value` words."""
    from eftgan.config import build
    from eftgan.models.gans import GANS

    return build(GANS[name], {"name": name} | options_of(words), name)


def gan_growth(family: "GanFamily", adapters: "AdapterConfig", whole: bool = False) -> "Growth":
    """Generator and discriminators together, as the paper counts; heads of discriminators are per task.

    whole: the discriminators train whole, and nothing of them is a task's.
    """
    import torch

    from eftgan.evaluation.growth import growth_of, total_growth
    from eftgan.names import GENERATOR

    with torch.device("meta"):
        networks = {GENERATOR: family.generator(), **family.discriminators()}
    found = {}
    for role, network in networks.items():
        config = dataclasses.replace(adapters, heads=() if role == GENERATOR else family.heads)
        if whole and role != GENERATOR:
            config = dataclasses.replace(config, parts=("heads",))
        found[role] = growth_of(network, config, family.example(role))
        if whole and role != GENERATOR:
            found[role] = dataclasses.replace(found[role], head_parameters=0, bytes_task=0)
    return total_growth(found)


def classifier_growth(name: str, classes: int, adapters: "AdapterConfig", size: int | None = None) -> "Growth":
    """A classifier by its name, its head wholly per task."""
    from eftgan.evaluation.growth import growth_of
    from eftgan.models.classifiers import build_classifier, classifier_names, head_name
    from eftgan.models.gans import GANS

    near = difflib.get_close_matches(name, GANS, 1, 0.7)
    if near and name not in classifier_names():
        raise UserError(f"no network {name!r}; did you mean {near[0]!r}?")
    if classes < 1:
        raise UserError(f"--classes {classes}: at least one")
    network = build_classifier(name, classes)
    size = size or (224 if name.startswith("torchvision:") else USUAL_SIZES.get(name, 32))
    if size < 8:
        raise UserError(f"images of {size} pixels are too small")
    return growth_of(network, dataclasses.replace(adapters, heads=(head_name(network),)), (3, size, size))


def rounding_note(found: "Growth", adapters: "AdapterConfig") -> list[str]:
    """A line about group sizes that do not divide the channels of some layers, and became others there."""
    asked = {"a": adapters.a, "b": adapters.b}
    became = Counter(
        (key, layer.sizes[key])
        for layer in found.layers
        for key, size in asked.items()
        if layer.sizes.get(key, size) != size
    )
    if not became:
        return []
    changes = ", ".join(
        f"{key} {asked[key]} became {size} in {count} layer{'s' * (count > 1)}"
        for (key, size), count in sorted(became.items())
    )
    return [f"\nrounded, since a group size must divide a layer's channels: {changes} (--layers shows each)"]
