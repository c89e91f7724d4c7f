"""Gates that are open or closed, unit by unit, once a task is learned: those of HAT and TFM."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.gates.base import Gate
from eftgan.adapters.layers import computes_as_torch, has_own_weight, set_weights
from eftgan.adapters.transforms import Option
from eftgan.tensors import pack_bits, unpack_bits

# A factor below this is 0, with its gradient: products of such factors have no float but a denormal one, with which a
# CPU computes many times slower.
NEGLIGIBLE = 1e-14


class FixedGate(Gate):
    """In eval mode y = (x * scale + shift) * [open], scale and shift being 1 and 0 where there are none."""

    @property
    def opened(self) -> Tensor:
        """True where the unit is open."""
        raise NotImplementedError

    def affine(self) -> tuple[Tensor, Tensor]:
        """Factor and summand of every unit in eval mode."""
        factors = self.opened.float()
        return factors, torch.zeros_like(factors)

    @torch.no_grad()
    def merged(self, layer: nn.Module) -> nn.Module:
        """The gate in the weights of what stands before it; where that cannot be, it stays a module."""
        like = next(layer.parameters(), None)
        if like is None:
            return super().merged(layer)
        factors, shift = (each.to(like.dtype) for each in self.affine())
        if isinstance(layer, _BatchNorm):  # it has parameters, so it is affine
            layer.weight.data, layer.bias.data = layer.weight * factors, layer.bias * factors + shift
            return layer
        if not isinstance(layer, _ConvNd | nn.Linear) or not has_own_weight(layer) or not computes_as_torch(layer):
            return super().merged(layer)
        transposed = isinstance(layer, _ConvNd) and layer.transposed
        if transposed and layer.groups != 1:
            return super().merged(layer)
        scale = factors.view([-1 if axis == int(transposed) else 1 for axis in range(layer.weight.dim())])
        bias = shift if layer.bias is None else layer.bias * factors + shift
        return set_weights(layer, layer.weight * scale, bias if bool(bias.any()) or layer.bias is not None else None)


class UnitGate(FixedGate):
    """HAT's attention (Serra et al., ICML 2018) in one of three forms, which the tensors of a state tell.

    Neither tensor: all units are open, the neutral state. `e`: in training, when factors are sigmoid(s e), and [e > 0]
    in eval mode. `bits`: finished. `scale` is s, and `scale_max` its largest value; the method sets both. Gradients of
    e are multiplied by what makes them smax sigmoid'(e) whatever s is (section 2.5 of the paper).
    """

    e: nn.Parameter | None
    bits: Tensor | None
    place: Tensor

    def __init__(self, channels: int, axes: int, normed: bool = False) -> None:
        super().__init__(channels, axes, normed)
        self.scale = self.scale_max = 1.0
        self.register_parameter("e", None)
        self.register_buffer("bits", None)
        self.register_buffer("place", torch.zeros(1), persistent=False)  # device and type of embeddings to come

    def set_identity(self) -> None:
        self.e = self.bits = None

    def begin(self) -> None:
        """Embeddings that open the same units."""
        opened = self.opened
        self.set_identity()
        self.e = nn.Parameter(torch.where(opened, 1.0, -1.0).to(self.place))

    def reset_parameters(self) -> None:
        """The paper's start: N(0, 1)."""
        self.begin()
        assert self.e is not None
        nn.init.normal_(self.e)

    def finish(self) -> None:
        self.take(self.opened)

    def take(self, opened: Tensor) -> None:
        """Open just these units from now on."""
        self.e, self.bits = None, pack_bits(opened)

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        if not state:  # of a network without gates, or of one whose gates come from elsewhere
            return
        if "e" in state and self.e is None:
            self.begin()
        if "e" not in state:
            self.e = None
        size = -(-self.channels // 8)
        self.bits = torch.zeros(size, dtype=torch.uint8, device=self.place.device) if "bits" in state else None

    @property
    def opened(self) -> Tensor:
        if self.e is not None:
            return self.e.detach() > 0
        if self.bits is not None:
            return unpack_bits(self.bits, (self.channels,))
        return torch.ones(self.channels, dtype=torch.bool, device=self.place.device)

    def factors(self) -> Tensor:
        """The attention of training, with graph."""
        if self.e is None:
            return self.opened.to(self.place.dtype)
        e = self.e.view_as(self.e)
        if e.requires_grad:
            e.register_hook(lambda gradient: gradient * self._compensation())
        factors = torch.sigmoid(self.scale * e)
        return factors - torch.where(factors < NEGLIGIBLE, factors, 0).detach()

    @torch.no_grad()
    def _compensation(self) -> Tensor:
        assert self.e is not None
        s, e = self.scale, self.e
        return self.scale_max / s * (torch.cosh((s * e).clamp(-50, 50)) + 1) / (torch.cosh(e) + 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_to(x, self.factors() if self.training else self.opened.to(x.dtype))

    def mask_bits(self) -> int:
        return self.channels

    def kept_parameters(self) -> int:
        return 0

    def describe(self) -> dict[str, Option]:
        return {"kind": "unit gate", "units": self.channels}


class SliceGate(FixedGate):
    """The first units of a layer are open: what TFM deals out, slice by slice.

    Where no BatchNorm stands before the gate, a task scales and shifts every unit here.
    """

    count: Tensor

    def __init__(self, channels: int, axes: int, normed: bool = False) -> None:
        super().__init__(channels, axes, normed)
        self.register_buffer("count", torch.tensor(channels, dtype=torch.int32))
        self.scale = None if normed else nn.Parameter(torch.ones(channels))
        self.shift = None if normed else nn.Parameter(torch.zeros(channels))

    @torch.no_grad()
    def set_identity(self) -> None:
        self.count.fill_(self.channels)
        if self.scale is not None and self.shift is not None:
            nn.init.ones_(self.scale)
            nn.init.zeros_(self.shift)

    def reset_parameters(self) -> None:
        """The neutral state: units are dealt out, not drawn."""
        self.set_identity()

    @property
    def opened(self) -> Tensor:
        return torch.arange(self.channels, device=self.count.device) < self.count

    def affine(self) -> tuple[Tensor, Tensor]:
        factors, shift = super().affine()
        if self.scale is None or self.shift is None:
            return factors, shift
        return self.scale * factors, self.shift * factors

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None or self.shift is None:
            return self.apply_to(x, self.opened.to(x.dtype))
        factors, shift = self.affine()
        return self.apply_to(x, factors) + shift[(..., *[None] * self.axes)]

    def mask_bits(self) -> int:
        return 32  # of the count

    def describe(self) -> dict[str, Option]:
        return {"kind": "slice gate", "units": self.channels}
