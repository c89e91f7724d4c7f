"""What Piggyback and SupSup share: a mask of a task's own on every weight, learned by scores and kept as bits."""

from dataclasses import dataclass
from typing import Annotated

from torch import nn
from typing_extensions import Doc

from eftgan.adapters import own_transforms
from eftgan.adapters.transforms import WeightMask
from eftgan.config import Positive
from eftgan.methods.exchange import Group, Networks, Probe
from eftgan.methods.frozen_base import OwnParts


@dataclass
class LearnsMasks(OwnParts):
    """Scores train without weight decay, which would close the mask, and become bits when the task ends."""

    score_rate: Annotated[Positive, Doc("learning rate of the scores, as a multiple of the network's")] = 1.0

    def masks(self, role: str, network: nn.Module, task: str) -> dict[str, WeightMask]:
        """The task's masks by layer; none where the network trains whole."""
        own = own_transforms(network, task) if self._adapts(role) else {}
        return {name: mask for name, mask in own.items() if isinstance(mask, WeightMask)}

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        self._scores = {
            mask.scores
            for role, network in networks.items()
            for mask in self.masks(role, network, task).values()
            if mask.scores is not None
        }
        return super().trainable(networks, task)

    def groups(self, role: str, parameters: list[nn.Parameter]) -> list[Group]:
        scores = [parameter for parameter in parameters if parameter in self._scores]
        others = [parameter for parameter in parameters if parameter not in self._scores]
        groups = [Group(others), Group(scores, rate=self.score_rate, decay=0.0)]
        return [group for group in groups if group.parameters]

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        for role, network in networks.items():
            for mask in self.masks(role, network, task).values():
                mask.finish()
        super().end_task(networks, task, probe)
