"""Where efficient feature transformations go: after or beside every convolution, after every linear layer."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from torch import nn
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.layers import axes_of, padding_of
from eftgan.adapters.transforms.base import Plan, Planner, Site
from eftgan.adapters.transforms.conv import ConvTransform
from eftgan.adapters.transforms.groups import check_group_sizes
from eftgan.adapters.transforms.linear import LinearTransform
from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.adapters.config import AdapterConfig


@dataclass(frozen=True)
class Eft(Planner):
    """Efficient feature transformations (Verma et al., CVPR 2021). a, b, mode, bias and sizes are its settings."""

    free: ClassVar[frozenset[str]] = frozenset({"a", "b"})  # the shapes of the tensors tell

    def check(self, config: "AdapterConfig") -> None:
        for a, b in [(config.a, config.b), *config.sizes.values()]:
            check_group_sizes(a, b)

    def describe(self, config: "AdapterConfig") -> dict[str, str]:
        return {"kind": config.kind, "mode": config.mode, "a": str(config.a), "b": str(config.b)}

    def plan(self, site: Site) -> Plan | str:
        if not isinstance(site.layer, nn.Linear):
            return _at_convolution(site.name, site.layer, site.config)
        if site.norm_follows:
            return "the per-task BatchNorm behind it would undo a scale"
        return Plan("serial", partial(LinearTransform, site.layer.out_features))


def _at_convolution(name: str, conv: _ConvNd, config: "AdapterConfig") -> Plan:
    a, b = config.group_sizes(name)
    channels, axes = conv.out_channels, axes_of(conv)
    if config.mode == "serial":
        return Plan("serial", partial(ConvTransform, channels, channels, a, b, bias=config.bias, axes=axes))
    if conv.transposed:
        raise UserError(
            f"parallel adapters do not fit {name}: a branch beside a transposed convolution is not supported; "
            "exclude it or use mode: serial"
        )
    if not branch_matches(conv):
        raise UserError(
            f"parallel adapters do not fit {name}: a 3x3 branch with zero padding 1 gives another output size than "
            f"{conv}; exclude it or use mode: serial"
        )
    make = partial(
        ConvTransform, conv.in_channels, channels, a, b,
        bias=config.bias, parallel=True, stride=conv.stride, axes=axes,
    )  # fmt: skip
    return Plan("parallel", make)


def branch_matches(conv: _ConvNd) -> bool:
    """Whether a 3x3, zero-padded branch of the same stride has this convolution's output size and folds into it.

    Output size: floor((input + 2 padding - kernel) / stride) + 1. Inputs that are multiples of the stride decide.
    """
    if any(step != 1 for step in conv.dilation) or conv.padding_mode != "zeros":
        return False
    if conv.padding == "same":
        return all(kernel % 2 for kernel in conv.kernel_size)
    sides = zip(conv.kernel_size, conv.stride, padding_of(conv), strict=True)
    return all((2 * padding - kernel) // stride == (2 - 3) // stride for kernel, stride, padding in sides)
