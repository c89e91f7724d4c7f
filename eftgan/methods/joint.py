"""Joint training: the upper bound that keeps all images."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from eftgan.methods.base import Method, Networks
from eftgan.methods.heads import train_heads


@dataclass
class Joint(Method):
    """Every task trains on the images of all tasks seen, with one softmax over their joined heads."""

    serves: ClassVar[frozenset[str]] = frozenset({"classifier"})

    name: Literal["joint"] = "joint"

    def trains_on(self, seen: list[str]) -> list[str]:
        return seen

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        found = super().trainable(networks, task)
        return {role: train_heads(networks[role], parameters) for role, parameters in found.items()}
