"""The layers that adapters go on, seen alike: convolutions of one to three axes, transposed ones, linear layers."""

import copy
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from eftgan.errors import UserError

Layer: TypeAlias = _ConvNd | nn.Linear
Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d

CONVOLUTIONS: dict[int, Callable[..., Convolution]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}  # by number of axes
TRANSPOSED: dict[int, Callable[..., _ConvNd]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}

# What torch's own layers compute with: a subclass that has another may do more with its weight than apply it.
KNOWN_FORWARDS = {
    getattr(layer, method)
    for layer in (*CONVOLUTIONS.values(), *TRANSPOSED.values(), nn.Linear)
    for method in ("forward", "_conv_forward")
    if hasattr(layer, method)
}


class NotMergeable(UserError):
    """A task that cannot be written as torch's own layers; the network itself can still run it."""


def axes_of(conv: _ConvNd) -> int:
    """Axes that a convolution moves along: 2 for images."""
    return len(conv.kernel_size)


def outputs_of(layer: nn.Module) -> int:
    """Output channels of a convolution, output features of a linear layer."""
    if isinstance(layer, _ConvNd):
        return layer.out_channels
    if isinstance(layer, nn.Linear):
        return layer.out_features
    raise TypeError(f"{type(layer).__name__} is neither a convolution nor a linear layer")


def outputs_in(layer: nn.Module, weight: Tensor) -> int:
    """How many outputs a weight would give such a layer; 0 where it is no weight for it at all."""
    transposed = isinstance(layer, _ConvNd) and layer.transposed
    if weight.ndim <= transposed:
        return 0
    return weight.shape[1] * layer.groups if isinstance(layer, _ConvNd) and transposed else weight.shape[0]


def resize_head(head: nn.Module, outputs: int) -> None:
    """Give a head another number of outputs; its weights are to be set afterwards."""
    if isinstance(head, _ConvNd):
        if outputs % head.groups:
            raise UserError(f"a head of {head.groups} groups cannot have {outputs} outputs: {head}")
        head.out_channels = outputs
    elif isinstance(head, nn.Linear):
        head.out_features = outputs
    else:
        raise TypeError(f"{type(head).__name__} is neither a convolution nor a linear layer")
    first, second, *rest = head.weight.shape
    if isinstance(head, _ConvNd) and head.transposed:
        second = outputs // head.groups
    else:
        first = outputs
    head.weight = nn.Parameter(head.weight.new_empty(first, second, *rest))
    if head.bias is not None:
        head.bias = nn.Parameter(head.bias.new_empty(outputs))


def weight_shape(layer: Layer) -> tuple[int, ...]:
    """Shape of the weight, known without looking at it: a computed one may change by being looked at."""
    if isinstance(layer, nn.Linear):
        return layer.out_features, layer.in_features
    if layer.transposed:
        return layer.in_channels, layer.out_channels // layer.groups, *layer.kernel_size
    return layer.out_channels, layer.in_channels // layer.groups, *layer.kernel_size


def padding_of(conv: _ConvNd) -> tuple[int, ...]:
    """Zeros before the first element of each axis, as numbers (dilation 1)."""
    if isinstance(conv.padding, str):
        return tuple(kernel // 2 if conv.padding == "same" else 0 for kernel in conv.kernel_size)
    return tuple(conv.padding)


def has_own_weight(layer: nn.Module) -> bool:
    """Whether the weight is a parameter, not computed by a parametrization or a hook (spectral norm)."""
    return "weight" in layer._parameters


def computes_as_torch(layer: nn.Module) -> bool:
    """Whether a layer applies its weight as torch's own does, so that another weight can stand for more."""
    own = type(layer)
    return own.forward in KNOWN_FORWARDS and getattr(own, "_conv_forward", own.forward) in KNOWN_FORWARDS


def plain_copy(layer: nn.Module) -> Layer:
    """A copy in eval mode whose weight is a parameter, also where it was computed (spectral norm)."""
    layer = copy.deepcopy(layer).eval()
    if not isinstance(layer, _ConvNd | nn.Linear):
        raise NotMergeable(f"cannot merge {layer}: it is neither a convolution nor a linear layer")
    if parametrize.is_parametrized(layer):
        return with_weights(layer, layer.weight, layer.bias)
    if not has_own_weight(layer):
        raise NotMergeable(
            f"cannot merge {layer}: a hook computes its weight; use torch.nn.utils.parametrizations instead"
        )
    return layer


def with_weights(like: Layer, weight: Tensor, bias: Tensor | None) -> Layer:
    """A layer that works as another one does, with given weights; of torch's own where those compute alike."""
    if has_own_weight(like) and computes_as_torch(like) and not type(like).__module__.startswith("torch."):
        return set_weights(copy.deepcopy(like), weight, bias)
    if isinstance(like, nn.Linear):
        linear = nn.Linear(like.in_features, weight.shape[0], bias is not None, device="meta")
        return set_weights(linear, weight, bias)
    if not like.transposed:
        return convolution(
            weight, bias, groups=like.groups, stride=like.stride, padding=like.padding,
            dilation=like.dilation, padding_mode=like.padding_mode,
        )  # fmt: skip
    conv = TRANSPOSED[axes_of(like)](
        like.in_channels, like.out_channels, like.kernel_size, like.stride, like.padding, like.output_padding,
        like.groups, bias is not None, like.dilation, like.padding_mode, device="meta",
    )  # fmt: skip
    return set_weights(conv, weight, bias)


def convolution(
    weight: Tensor,
    bias: Tensor | None,
    *,
    groups: int,
    stride: int | tuple[int, ...] = 1,
    padding: int | str | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    padding_mode: str = "zeros",
) -> Layer:
    """A convolution with given weights (K, C / groups, taps ...)."""
    conv = CONVOLUTIONS[weight.dim() - 2](
        weight.shape[1] * groups, weight.shape[0], weight.shape[2:], stride, padding, dilation, groups,
        bias is not None, padding_mode, device="meta",
    )  # fmt: skip
    return set_weights(conv, weight, bias)


def set_weights(layer: Layer, weight: Tensor, bias: Tensor | None) -> Layer:
    """The layer itself, with copies of these in the place of its parameters, and of their size."""
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    elif not layer.transposed:
        layer.out_channels, layer.in_channels = weight.shape[0], weight.shape[1] * layer.groups
    layer.weight = nn.Parameter(weight.detach().clone())
    layer.bias = None if bias is None else nn.Parameter(bias.detach().clone())
    return layer
