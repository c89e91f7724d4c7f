"""Learning without forgetting (Li and Hoiem 2017)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.config import NonNegative, Positive
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, Networks, Probe
from eftgan.methods.heads import features_of, head_of, train_heads
from eftgan.methods.predecessor import Predecessor
from eftgan.names import CLASSIFIER


def distillation(new: Tensor, old: Tensor, temperature: float) -> Tensor:
    """The paper's loss for old tasks: -sum y' log y^', where y' = y^(1/T) / sum y^(1/T), and y^' likewise.

    y are the recorded probabilities of the old network, y^ those of the new one; mean over the batch.
    """
    targets = F.softmax(old / temperature, dim=1)  # the same as y^(1/T), normalised
    return -(targets * F.log_softmax(new / temperature, dim=1)).sum(1).mean()


@dataclass
class Lwf(Method):
    """Learning without forgetting: on the new task's images, old heads go on answering as they did before it."""

    title: ClassVar[str] = "LwF"
    only_for: ClassVar[str | None] = "classifier"

    name: Literal["lwf"] = "lwf"
    strength: Annotated[NonNegative, Doc("lambda_o: weight of every earlier task's distillation loss")] = 1.0
    temperature: Annotated[Positive, Doc("T: probabilities are raised to 1/T")] = 2.0

    def __post_init__(self) -> None:
        self.teacher = Predecessor()  # the network as the task found it

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        if len(task_names(networks[CLASSIFIER])) > 1:
            self.teacher.take(networks[CLASSIFIER])

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        network = networks[CLASSIFIER]
        self.teacher.to(next(network.parameters()).device)
        return {role: train_heads(network, found) for role, found in super().trainable(networks, task).items()}

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        if not self.teacher:
            return 0.0
        features, losses = features_of(self.teacher.network, batch.inputs), []
        for task in task_names(networks[role])[:-1]:
            new = head_of(networks[role], task)(batch.features)
            losses.append(distillation(new, head_of(self.teacher.network, task)(features), self.temperature))
        return self.strength * torch.stack(losses).sum()

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        self.teacher.drop()

    def state_dict(self) -> dict[str, Tensor]:
        return self.teacher.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.teacher.load(state, networks[CLASSIFIER])
