"""Fixed representation: the first task's features, and a head for every task."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import Doc

from eftgan.adapters import task_names, task_state
from eftgan.methods.base import Method
from eftgan.methods.exchange import Networks
from eftgan.methods.parameters import state_of_others
from eftgan.names import CLASSIFIER


@dataclass
class Fixed(Method):
    """Freezing: from the second task on only the new head trains; BatchNorm keeps the first task's statistics."""

    title: ClassVar[str] = "FixedRep"
    only_for: ClassVar[str | None] = "classifier"

    name: Literal["fixed"] = "fixed"
    base: Annotated[Literal["train", "pretrained"], Doc("pretrained: frozen from the first task on")] = "train"

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"base": self.base} if self.base != "train" else {}

    def trains_shared(self, role: str, first: bool) -> bool:
        return first and self.base == "train"

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        if not self._trains_features(networks, task):
            for module in networks[CLASSIFIER].modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return super().trainable(networks, task)

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return state_of_others(networks[CLASSIFIER], task, theta=not self._trains_features(networks, task))

    def _trains_features(self, networks: Networks, task: str) -> bool:
        return self.trains_shared(CLASSIFIER, task_names(networks[CLASSIFIER])[0] == task)

    @property
    def files_suffice(self) -> bool:
        return True

    @property
    def lets_go(self) -> bool:
        return True

    def snapshot(self, networks: Networks, task: str) -> dict[str, Tensor]:
        return {f"{CLASSIFIER}/{key}": tensor for key, tensor in task_state(networks[CLASSIFIER], task).items()}
