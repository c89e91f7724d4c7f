"""Joint training: the upper bound that keeps all images."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from eftgan.methods.base import Networks
from eftgan.methods.heads import ClassifierMethod, train_heads


@dataclass
class Joint(ClassifierMethod):
    """Every task trains on the images of all tasks seen, with one softmax over their joined heads."""

    name: Literal["joint"] = "joint"

    def trains_on(self, seen: list[str]) -> list[str]:
        return seen

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        found = super().trainable(networks, task)
        return {role: train_heads(networks[role], parameters) for role, parameters in found.items()}
