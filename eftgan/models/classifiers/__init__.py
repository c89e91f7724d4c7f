"""The classifiers by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from eftgan.errors import UserError
from eftgan.models.classifiers.alexnet import alexnet
from eftgan.models.classifiers.lenet import lenet_apd
from eftgan.models.classifiers.pretrained import head_name, load_pretrained
from eftgan.models.classifiers.resnet import resnet8, resnet18, resnet18_third, resnet32
from eftgan.models.classifiers.torchvision_zoo import torchvision_names, torchvision_network, torchvision_weights
from eftgan.models.classifiers.vgg import vgg16_bn, vgg16_tiny
from eftgan.models.weights import read_weights

__all__ = ["CLASSIFIERS", "build_classifier", "classifier_names", "head_name"]

# Each takes the number of classes; a new network is one file and one line here.
CLASSIFIERS: dict[str, Callable[[int], nn.Module]] = {
    "resnet18": resnet18,
    "resnet18_third": resnet18_third,
    "resnet32": resnet32,
    "resnet8": resnet8,
    "vgg16_bn": vgg16_bn,
    "vgg16_tiny": vgg16_tiny,
    "alexnet": alexnet,
    "lenet_apd": lenet_apd,
}

TORCHVISION = "torchvision:"


def build_classifier(name: str, num_classes: int, weights: Path | str | None = None) -> nn.Module:
    """A network of `CLASSIFIERS`, or torchvision's own as `torchvision:resnet50`.

    `weights`: a file, or for torchvision's networks also a published name such as DEFAULT. A head for another
    number of classes is not loaded.
    """
    if name in CLASSIFIERS:
        model = CLASSIFIERS[name](num_classes)
    elif name in classifier_names():
        model = torchvision_network(name.removeprefix(TORCHVISION), num_classes)
    else:
        nearest = difflib.get_close_matches(name, classifier_names(), n=1, cutoff=0.0)[0]
        raise UserError(f"no network {name!r}; did you mean {nearest!r}? Ours: {', '.join(CLASSIFIERS)}")
    if weights is not None:
        load_pretrained(model, _read(name, weights), source=str(weights))
    return model


def classifier_names() -> list[str]:
    """Every name that `build_classifier` knows."""
    return [*CLASSIFIERS, *(TORCHVISION + name for name in torchvision_names())]


def _read(name: str, weights: Path | str) -> dict[str, Tensor]:
    path = Path(weights)
    # A name with a suffix that is no file is a missing file, not one of torchvision's weights.
    if name in CLASSIFIERS or path.is_file() or path.suffix:
        return read_weights(path)
    return torchvision_weights(name.removeprefix(TORCHVISION), str(weights))
