"""A mask of a task's own on every weight: V = W * m with entries of 0 and 1 (Piggyback, SupSup, PackNet).

While a task trains, a real score stands behind every entry, and the gradient goes straight through to it. Afterwards
the scores are dropped and the mask is kept, a bit a weight.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from eftgan.adapters.layers import outputs_of, weight_shape
from eftgan.adapters.transforms.base import Option, Plan, Planner, Site, Transform
from eftgan.errors import UserError
from eftgan.tensors import pack_bits, unpack_bits

OPEN, THRESHOLD, CLOSED = 1e-2, 5e-3, 0.0  # scores: at the start (Mallya et al. 2018), where the mask turns, below it


class WeightMask(Transform):
    """The mask of one task at one layer, in one of three forms, which the tensors of a state tell.

    Neither tensor: no mask, the neutral state. `scores`: in training. `bits`: finished. With `kept`, a share, the mask
    has that share of the scores that are largest in size; without, those above the threshold.
    """

    scores: nn.Parameter | None
    bits: Tensor | None
    place: Tensor

    def __init__(self, shape: tuple[int, ...], kept: float | None = None) -> None:
        super().__init__()
        self.shape, self.kept = shape, kept
        self.register_parameter("scores", None)
        self.register_buffer("bits", None)
        self.register_buffer("place", torch.zeros(1), persistent=False)  # device and type of scores to come

    def set_identity(self) -> None:
        self.scores = self.bits = None

    def begin(self) -> None:
        """Scores that give the mask as it is."""
        mask = self.mask()
        self.set_identity()
        self.scores = nn.Parameter(self.place.new_full(self.shape, OPEN))
        if mask is not None:
            self.scores.data.masked_fill_(~mask, CLOSED)

    def reset_parameters(self) -> None:
        """Scores as PyTorch starts weights: SupSup's start."""
        self.begin()
        assert self.scores is not None
        nn.init.kaiming_uniform_(self.scores, a=math.sqrt(5))

    def mask(self) -> Tensor | None:
        """True where a weight is used; None: everywhere."""
        if self.scores is not None:
            return self._chosen(self.scores.detach())
        return None if self.bits is None else unpack_bits(self.bits, self.shape)

    def _chosen(self, scores: Tensor) -> Tensor:
        if self.kept is None:
            return scores > THRESHOLD
        sizes = scores.abs().reshape(-1)
        return without_smallest(sizes, int((1 - self.kept) * len(sizes))).view(self.shape)

    def weight(self, weight: Tensor) -> Tensor:
        mask = self.mask()
        if mask is None:
            return weight
        factor = mask.to(weight.dtype)
        if self.scores is not None:
            way = self.scores if self.kept is None else self.scores.abs()
            factor = factor + (way - way.detach())  # adds zero; the gradient goes straight through
        return weight * factor

    def finish(self) -> None:
        mask = self.mask()
        self.set_identity()
        self.bits = None if mask is None else pack_bits(mask)

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        if not state:  # of a network without masks, or of one whose masks come from elsewhere
            return
        if "scores" in state and self.scores is None:
            self.begin()
        if "scores" not in state:
            self.scores = None
        size = -(-math.prod(self.shape) // 8)
        self.bits = torch.zeros(size, dtype=torch.uint8, device=self.place.device) if "bits" in state else None

    def kept_parameters(self) -> int:
        return 0

    def mask_bits(self) -> int:
        return 0 if self.scores is None and self.bits is None else math.prod(self.shape)

    def weight_flops(self) -> int:
        return self.mask_bits()

    def describe(self) -> dict[str, Option]:
        return {"kind": "mask", "bits": self.mask_bits()}


class GivenMask(WeightMask):
    """A mask that is set and not learned (PackNet), and a bias of the task's own: from 0, added to the layer's."""

    def __init__(self, shape: tuple[int, ...], bias: int = 0) -> None:
        super().__init__(shape)
        self.own_bias = nn.Parameter(torch.zeros(bias)) if bias else None

    def set_identity(self) -> None:
        super().set_identity()
        if self.own_bias is not None:
            nn.init.zeros_(self.own_bias)

    def reset_parameters(self) -> None:
        """The neutral state: there is nothing that could be drawn."""
        self.set_identity()

    def begin(self) -> None:
        """See every weight again."""
        self.bits = None

    def finish(self) -> None:
        self.take(self.seen())

    def take(self, seen: Tensor) -> None:
        """Take another mask."""
        self.bits = pack_bits(seen)

    def seen(self) -> Tensor:
        """True where the task sees a weight."""
        mask = self.mask()
        return torch.ones(self.shape, dtype=torch.bool, device=self.place.device) if mask is None else mask

    def weight(self, weight: Tensor) -> Tensor:
        """Filled, not multiplied: what another task writes into hidden entries leaves no trace, not even in a sign.

        On a copy, which keeps channels-last order.
        """
        mask = self.mask()
        return weight if mask is None else weight.clone().masked_fill_(~mask, 0.0)

    def bias(self, bias: Tensor | None) -> Tensor | None:
        return bias if bias is None or self.own_bias is None else bias + self.own_bias

    def kept_parameters(self) -> int:
        return 0 if self.own_bias is None else self.own_bias.numel()

    def weight_flops(self) -> int:
        return super().weight_flops() + self.kept_parameters()


def without_smallest(sizes: Tensor, count: int) -> Tensor:
    """True but for the smallest entries of (n,), exactly so many; of equal ones the first are left out."""
    if count == 0:
        return torch.ones_like(sizes, dtype=torch.bool)
    cut = sizes.kthvalue(count).values  # a twelfth of the time of sorting
    mask, equal = sizes > cut, sizes == cut
    lacking = len(sizes) - count - mask.sum()
    return mask | (equal & (equal.flip(0).cumsum(0).flip(0) <= lacking))


@dataclass(frozen=True)
class Masks(Planner):
    """On every convolution and linear layer.

    rule: "threshold"; "given", with a bias per task; or "top": in every layer the share `density` of the weights, or
    with density 0 as many as a `budget` S allows, min(1/2, S (K + C) / (K C taps)).
    """

    free: ClassVar[frozenset[str]] = frozenset({"rule", "budget", "density"})  # finished masks are but bits

    rule: Literal["threshold", "top", "given"] = "threshold"
    budget: float = 16.0
    density: float = 0.0

    def __post_init__(self) -> None:
        if self.rule not in ("threshold", "top", "given"):
            raise UserError(f"rule must be threshold, top or given, got {self.rule!r}")
        if self.budget <= 0 or not 0 <= self.density <= 1:
            raise UserError(f"budget must be above 0 and density from 0 to 1, got {self.budget} and {self.density}")

    def plan(self, site: Site) -> Plan:
        shape = weight_shape(site.layer)
        if self.rule == "given":
            return Plan("weight", partial(GivenMask, shape, 0 if site.layer.bias is None else outputs_of(site.layer)))
        kept = None if self.rule == "threshold" else self.density or kept_share(shape, self.budget)
        return Plan("weight", partial(WeightMask, shape, kept))


def kept_share(shape: tuple[int, ...], budget: float) -> float:
    """Share of a layer's weights that SupSup keeps (Wortsman et al. 2020)."""
    return min(0.5, budget * sum(shape[:2]) / math.prod(shape))
