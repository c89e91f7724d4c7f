"""Side-tuning (Zhang et al. 2020): a small network per task beside the shared one, blended with it before the head.

    R = a B(x) + (1 - a) S(x),    a = sigmoid(alpha)

B: what the head reads of the shared network, S: the task's own network of the same input.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from eftgan.adapters.bank import TaskBank, named_banks, registry_of
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.transforms import Flops, Option, Transform
from eftgan.errors import UserError


def side_network(widths: Sequence[int], features: int) -> nn.Sequential:
    """3x3 convolutions with GroupNorm, the mean of every map, and a linear layer: images -> features.

    The first and the last convolution keep the size of the map, the others halve it.
    """
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise([3, *widths])):
        stride = 1 if place in (0, len(widths) - 1) else 2
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        layers += [conv, nn.GroupNorm(math.gcd(2, outputs), outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], features))


class SideNetwork(Transform):
    """One task's network beside the shared one. In the neutral state there is none, and R is B."""

    alpha: nn.Parameter | None
    side: nn.Sequential | None
    place: Tensor

    def __init__(self, widths: Sequence[int], features: int) -> None:
        super().__init__()
        self.widths, self.features, self.side = tuple(widths), features, None
        self.register_parameter("alpha", None)
        self.register_buffer("place", torch.zeros(1), persistent=False)  # device and type of what is to come
        self.image: torch.Size | None = None  # the shape of the last input, by which FLOPs are counted

    def set_identity(self) -> None:
        self.side = self.alpha = None

    def reset_parameters(self) -> None:
        """As PyTorch starts the layers; both networks count alike."""
        self.side = side_network(self.widths, self.features).to(self.place).train(self.training)
        self.alpha = nn.Parameter(self.place.new_zeros(()))

    def begin(self) -> None:
        if self.side is None:
            self.reset_parameters()

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        if "alpha" in state and self.side is None:
            with torch.random.fork_rng(devices=()):  # what is drawn is overwritten
                self.reset_parameters()

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        if self.side is None or self.alpha is None:
            return y
        self.image = x.shape
        a = torch.sigmoid(self.alpha)
        return a * y + (1 - a) * self.side(x)

    def outputs(self, layer: nn.Module) -> int:
        return self.features

    def describe(self) -> dict[str, Option]:
        return {"kind": "side network", "layers": 0 if self.side is None else len(self.widths) + 1}

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        """By layers; then two products for the blend."""
        if self.side is None or self.image is None:
            return Flops(0, 0)
        cost, (height, width) = 2 * out.numel(), self.image[-2:]
        for layer in self.side:
            if isinstance(layer, nn.Conv2d):
                height, width = (-(-size // layer.stride[0]) for size in (height, width))
                cost += len(out) * height * width * layer.out_channels * (2 * layer.weight[0].numel() + 3)  # norm, relu
            elif isinstance(layer, nn.Linear):
                cost += out.numel() * (2 * layer.in_features + 1)
        return Flops(cost, cost)


class NetworkInput:
    """What the network was given last; a bank before its head reads it once."""

    def __init__(self) -> None:
        self.images: Tensor | None = None

    def note(self, network: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.images = inputs[0]


class Before(nn.Identity):
    """In the place before a head; tells on which device it is."""

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("place", like.detach().new_zeros(1), persistent=False)


class SideBank(TaskBank):
    """Tasks' side networks before a head: task(x, input of the network)."""

    shares_batches = False

    def __init__(self, given: NetworkInput, *args: Any) -> None:
        super().__init__(*args)
        self.given = given

    def forward(self, x: Tensor) -> Tensor:
        row, images = self.registry.active, self.given.images
        self.given.images = None
        if not isinstance(row, dict):
            return super().forward(x)
        return self.task(row)(x, images)


def add_side_networks(network: nn.Module, widths: Sequence[int]) -> None:
    """Give an adapted network without tasks a bank of side networks before its head."""
    (head,) = (bank for _, bank in named_banks(network) if bank.part == "heads")
    layer, given = head.layer, NetworkInput()
    if not isinstance(layer, nn.Linear):
        raise UserError(f"side networks need a linear head, not {layer}")
    make = partial(SideNetwork, tuple(widths), layer.in_features)
    bank = SideBank(given, Before(layer.weight), registry_of(network), "transforms", "both", make)
    replace_modules(network, {head: nn.Sequential(OrderedDict(side=bank, head=head))})
    network.register_forward_pre_hook(given.note)
