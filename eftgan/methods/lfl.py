"""Less-forgetting learning (Jung et al. 2016)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.config import NonNegative
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, Networks, Probe
from eftgan.methods.heads import features_of
from eftgan.methods.predecessor import Predecessor
from eftgan.names import CLASSIFIER


def feature_distance(new: Tensor, old: Tensor) -> Tensor:
    """1/2 |f_t(x) - f_{t-1}(x)|^2: a sum over the features (B, F), a mean over the batch."""
    return 0.5 * (new - old).square().flatten(1).sum(1).mean()


@dataclass
class Lfl(Method):
    """Less-forgetting learning: L + lambda/2 |f_t(x) - f_{t-1}(x)|^2, f being what the head reads.

    On the new task's images the features stay where the network put them that the task found; earlier heads, and so
    their decision boundaries, are frozen. That network answers with its running statistics and the one in training
    with those of the batch, so that BatchNorm makes a distance even between equal weights.
    """

    title: ClassVar[str] = "LfL"
    only_for: ClassVar[str | None] = "classifier"

    name: Literal["lfl"] = "lfl"
    strength: Annotated[
        NonNegative, Doc("lambda; that of the code of HAT, 0.05 on a batch sum of 64, is 3.2 and needs a small rate")
    ] = 0.1

    def __post_init__(self) -> None:
        self.teacher = Predecessor()  # the network as the task found it

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        if len(task_names(networks[CLASSIFIER])) > 1:
            self.teacher.take(networks[CLASSIFIER])

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        self.teacher.to(next(networks[CLASSIFIER].parameters()).device)
        return super().trainable(networks, task)

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        if not self.teacher:
            return 0.0
        assert batch.features is not None  # a classifier's batches have them
        return self.strength * feature_distance(batch.features, features_of(self.teacher.network, batch.inputs))

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        self.teacher.drop()

    def state_dict(self) -> dict[str, Tensor]:
        return self.teacher.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.teacher.load(state, networks[CLASSIFIER])
