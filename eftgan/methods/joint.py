"""Joint training: the upper bound that keeps all images."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

from eftgan.adapters.bank import Part
from eftgan.methods.base import Method
from eftgan.methods.exchange import Networks
from eftgan.methods.parameters import train_all_tasks
from eftgan.names import CLASSIFIER


@dataclass
class Joint(Method):
    """Every task trains on the images of all tasks seen, and all that any of them owns goes on training.

    A classifier has one softmax over the joined heads. A GAN is conditioned on the task by what every task owns: the
    normalisation of generator and discriminators, and the discriminators' logits layers. Its batches come from the
    seen tasks in turn, with that task selected in every network. A task trains for as many steps as with any other
    method, so that runs compare by their steps: the more tasks are seen, the fewer of them each task gets.
    """

    title: ClassVar[str] = "Joint (bound)"

    name: Literal["joint"] = "joint"

    def owned_by_tasks(self, role: str) -> Iterable[Part]:
        return () if role == CLASSIFIER else ("norms", "heads")

    def trains_on(self, seen: list[str]) -> list[str]:
        return seen

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        super().trainable(networks, task)
        return {role: train_all_tasks(network) for role, network in networks.items()}
