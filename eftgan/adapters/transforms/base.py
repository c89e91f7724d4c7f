"""What a transformation is to the rest of the program: nobody outside its file needs to know which one it is.

A new one is a file in this folder, with a `Transform` and a `Planner`, and a line in TRANSFORMS.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

from eftgan.adapters.adopting import Adopting
from eftgan.adapters.layers import Layer, NotMergeable, outputs_of
from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.adapters.config import AdapterConfig

# How a task's module and the shared layer work together:
# task(layer(x)) | layer(x) + task(x) | the layer with task.weight(W), task.bias(b) | task(layer(x), x) | task(x)
Mode: TypeAlias = Literal["serial", "parallel", "weight", "both", "replace"]
Option: TypeAlias = int | float | str | bool


class Flops(NamedTuple):
    """The analytic count, as the equations say, and the executed one."""

    analytic: int
    executed: int


class Transform(Adopting):
    """One task's change of one layer.

    `forward` takes what the mode says: the layer's output (serial), its input (parallel, replace), or both in this
    order (both). In mode "weight" there is no forward; `weight` and `bias` are methods, so a transform's own tensors
    need other names.
    """

    def set_identity(self) -> None:
        """The neutral state: the layer's output stays the same to the bit. Draws no random numbers."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """A random state, for tasks with `init: random`."""
        raise NotImplementedError

    def begin(self) -> None:
        """Take the form that trains, from any other."""

    def finish(self) -> None:
        """Take the form that is kept once the task is learned: a mask's bits in the place of its scores."""

    def tasks_before(self) -> int | None:
        """How many tasks must be there before this one, which reads them; None: they do not matter."""
        return None

    def mask_bits(self) -> int:
        """How many numbers of one bit a finished task keeps here, in the place of parameters."""
        return 0

    def describe(self) -> dict[str, Option]:
        """Its kind, then its effective sizes: what `growth --layers` shows."""
        raise NotImplementedError

    def outputs(self, layer: nn.Module) -> int:
        """Channels of what comes out of the layer that it is on."""
        return outputs_of(layer)

    def kept_parameters(self) -> int:
        """Parameters that a finished task keeps of it."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops(self, x: Tensor, out: Tensor) -> Flops:
        """Cost of one forward from x (with mode "both": the layer's output) to `out`."""
        raise NotImplementedError

    def merged(self, layer: Layer) -> nn.Module:
        """The layer and this task's change of it, as torch's own layers. `layer` is a copy in eval mode."""
        raise NotMergeable(
            f"a task with {type(self).__name__} cannot be merged into a network of plain layers; only the adapted "
            "network can run it"
        )

    def standalone(self) -> nn.Module:
        """This change by itself, as plain as it can be, for several tasks side by side."""
        return copy.deepcopy(self)

    def weight(self, weight: Tensor) -> Tensor:
        """Mode "weight": what the task computes with in the place of the layer's weight."""
        raise NotImplementedError

    def bias(self, bias: Tensor | None) -> Tensor | None:
        """Mode "weight": the same for the bias; None only where the layer has none."""
        return bias

    def weight_flops(self) -> int:
        """Mode "weight": cost of `weight` and `bias`, once per forward however large the batch."""
        raise NotImplementedError


@dataclass(frozen=True)
class Site:
    """A layer that a transform could go on."""

    name: str
    layer: Layer
    config: AdapterConfig
    norm_follows: bool  # a BatchNorm of the task's own reads the layer's output, and nobody else does


class Plan(NamedTuple):
    """How a layer's bank works, and what makes a new task's transform in its neutral state."""

    mode: Mode
    make: Callable[[], Transform]


@dataclass(frozen=True)
class Planner:
    """Where the transforms of one kind go. The fields of a planner are the options that its kind knows."""

    free: ClassVar[frozenset[str]] = frozenset()  # keys of `describe` that a task file and its reader need not share

    def check(self, config: AdapterConfig) -> None:
        """Refuse settings that this kind has no use for."""
        for key, unset in (("mode", "serial"), ("sizes", {})):
            if getattr(config, key) != unset:
                raise UserError(f"{key} is a setting of kind eft; {config.kind} has none")

    def plan(self, site: Site) -> Plan | str:
        """What goes on a convolution or linear layer, or the reason why it stays shared."""
        raise NotImplementedError

    def describe(self, config: AdapterConfig) -> dict[str, str]:
        """What a task's file says of its adapters."""
        return {"kind": config.kind} | {key: str(value) for key, value in dataclasses.asdict(self).items()}
