"""Side-tuning (Zhang et al., ECCV 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from torch import nn
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, own_transforms
from eftgan.adapters.bank import Part
from eftgan.adapters.side import SideNetwork, add_side_networks
from eftgan.config import Count
from eftgan.errors import UserError
from eftgan.methods.exchange import Networks
from eftgan.methods.fixed import Fixed
from eftgan.names import CLASSIFIER


@dataclass
class Side(Fixed):
    """A frozen base B and a small network S_t per task; its head reads a B(x) + (1 - a) S_t(x), a = sigmoid(alpha).

    The first task trains the base, without a network beside it; a pretrained base is frozen from the first task on.
    """

    title: ClassVar[str] = "Side-tuning"
    owns: ClassVar[frozenset[Part]] = frozenset({"transforms", "heads"})

    name: Literal["side"] = "side"  # type: ignore[assignment]
    init: Annotated[Literal["previous", "random"], Doc("where a task's side network starts")] = "previous"
    widths: Annotated[list[Count], Doc("channels of the side network's convolutions")] = field(
        default_factory=lambda: [16, 16, 32, 64]
    )

    def __post_init__(self) -> None:
        if not self.widths:
            raise UserError("method.widths: a side network needs one convolution at least")
        self._side: SideNetwork | None = None  # of the task in training

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"adapters": self.name}

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        super().prepare(networks, adapters)
        add_side_networks(networks[CLASSIFIER], self.widths)

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        if not self._trains_features(networks, task):
            side_of(networks[CLASSIFIER], task).begin()

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        self._side = side_of(networks[CLASSIFIER], task)
        return super().trainable(networks, task)

    def figures(self) -> dict[str, float]:
        """a, the share of the base in what the head reads."""
        alpha = self._side.alpha if self._side is not None else None
        return {} if alpha is None else {"base-share": alpha.sigmoid().item()}


def side_of(network: nn.Module, task: str) -> SideNetwork:
    """A task's network beside the shared one."""
    (side,) = own_transforms(network, task).values()
    assert isinstance(side, SideNetwork)
    return side
