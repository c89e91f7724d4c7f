"""Which adapters a network gets, and where."""

import dataclasses
import difflib
import fnmatch
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from eftgan.adapters.gates import GATES
from eftgan.adapters.transforms import TRANSFORMS, Option, Planner
from eftgan.errors import UserError

Part: TypeAlias = Literal["transforms", "norms", "heads"]
PARTS: tuple[Part, ...] = ("transforms", "norms", "heads")


@dataclass(frozen=True)
class AdapterConfig:
    """Which transformation goes where. Patterns are shell-style and match dotted names of layers (`layer4.*`).

    Args:
        a: EFT: group size of the 3x3 convolution; 0 leaves it out.
        b: EFT: group size of the 1x1 convolution; 0 leaves it out.
        mode: EFT: `serial`, behind the layer, or `parallel`, beside it.
        bias: Whether transforms carry a bias.
        heads: Patterns of layers that are wholly per task, without a transform.
        exclude: Patterns of convolutions and linear layers that stay shared.
        sizes: EFT: pattern -> (a, b) for the layers that match, in place of `a` and `b`.
        parts: Which parts every task has of its own: some of `transforms`, `norms`, `heads`.
        kind: Of transform: a name in `eftgan.adapters.TRANSFORMS`.
        options: What only this kind knows: the fields of its planner.
        gate: Behind every adapted layer and its BatchNorm: a name in `eftgan.adapters.gates.GATES`; empty: none.

    Examples:
        >>> config = AdapterConfig(a=8, b=16, heads=("fc",), sizes={"layer4.*": (16, 32)})
        >>> config.group_sizes("layer1.0.conv1"), config.group_sizes("layer4.0.conv1")
        ((8, 16), (16, 32))
    """

    a: int = 8
    b: int = 16
    mode: Literal["serial", "parallel"] = "serial"
    bias: bool = True
    heads: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    parts: tuple[Part, ...] = PARTS
    kind: str = "eft"
    options: dict[str, Option] = field(default_factory=dict)
    gate: str = ""

    def __post_init__(self) -> None:
        if self.mode not in ("serial", "parallel"):
            raise UserError(f"mode must be serial or parallel, got {self.mode!r}")
        if unknown := set(self.parts) - set(PARTS):
            raise UserError(f"unknown parts {sorted(unknown)}; choose from {', '.join(PARTS)}")
        for key in ("heads", "exclude"):
            if isinstance(getattr(self, key), str):
                raise UserError(f"{key} takes several patterns: write ({getattr(self, key)!r},)")
        if self.gate and self.gate not in GATES:
            raise UserError(f"no gates of kind {self.gate!r}; there are: {', '.join(GATES)}")
        self.planner().check(self)

    def planner(self) -> Planner:
        """What knows where transforms of this kind go, made with the options."""
        if self.kind not in TRANSFORMS:
            near = difflib.get_close_matches(str(self.kind), TRANSFORMS, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(TRANSFORMS)}"
            raise UserError(f"no adapters of kind {self.kind!r}; {hint}")
        planner = TRANSFORMS[self.kind]
        known = {each.name: each.default for each in dataclasses.fields(planner)}
        for key, value in self.options.items():
            if key not in known:
                raise UserError(f"kind {self.kind} has no option {key!r}; it knows: {', '.join(known) or 'none'}")
            for kind, noun in ((bool, "true or false"), (str, "a word"), (int | float, "a number")):
                if isinstance(known[key], kind):
                    if not isinstance(value, kind):
                        raise UserError(f"option {key!r} of kind {self.kind} must be {noun}, got {value!r}")
                    break
        return planner(**self.options)

    def group_sizes(self, name: str) -> tuple[int, int]:
        """a and b of the layer of this name."""
        return next((ab for p, ab in self.sizes.items() if fnmatch.fnmatchcase(name, p)), (self.a, self.b))
