"""Nearest x2 upsampling and the 3x3 convolution behind it as one transposed convolution: the same function, 4/9 of the
arithmetic.

A 3x3 convolution over an image in which every pixel stands four times adds up its taps pixel by pixel of the small
image: along one axis, the output beside the left border of a pixel sees its taps 0 | 1 + 2 and the one beside the right
border 0 + 1 | 2. That is a transposed convolution with kernel 4, stride 2 and padding 1, K = M W M^T, zero padding
included.
"""

import contextlib
import functools
from collections.abc import Iterable
from typing import TypeGuard

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from eftgan.adapters.bank import TaskBank, named_banks
from eftgan.adapters.graph import read_bare, trace
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.layers import KNOWN_FORWARDS, has_own_weight
from eftgan.adapters.tasks import using_task

TAPS = ((0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 0.0), (1.0, 0.0, 0.0))  # M: rows of K from rows of W
# While W trains, K is made at every step. That costs more than it saves for a large W and few pixels of the small
# images in a batch: a rule, so that results never depend on timing (docs/benchmarks.md has the measurements behind it).
WEIGHTS_PER_PIXEL = 8192


@functools.cache
def _spreading(dtype: torch.dtype, device: torch.device) -> Tensor:
    """(9, 16): a 3x3 kernel's taps -> those of K, both flattened."""
    taps = torch.tensor(TAPS, dtype=dtype, device=device)
    return torch.einsum("ka,lb->abkl", taps, taps).reshape(9, 16)


def upsampling_kernel(weight: Tensor) -> Tensor:
    """K (C, O, 4, 4) of a 3x3 convolution's weight (O, C, 3, 3)."""
    out_channels, in_channels = weight.shape[:2]
    spread = weight.transpose(0, 1).reshape(-1, 9) @ _spreading(weight.dtype, weight.device)
    return spread.view(in_channels, out_channels, 4, 4)


class UpsampledConv2d(nn.Conv2d):
    """A 3x3 convolution that upsamples its input itself; parameters and their names are the convolution's own."""

    _kept: tuple[object, Tensor] | None = None  # the kernel of a weight that does not train, and of which state of it

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if torch.is_grad_enabled() and weight.requires_grad:
            pixels = input.shape[0] * input.shape[2] * input.shape[3]
            if weight.numel() > WEIGHTS_PER_PIXEL * pixels:
                return F.conv2d(F.interpolate(input, scale_factor=2, mode="nearest"), weight, bias, padding=1)
            return F.conv_transpose2d(input, upsampling_kernel(weight), bias, stride=2, padding=1)
        return F.conv_transpose2d(input, self._kernel_of(weight), bias, stride=2, padding=1)

    def _kernel_of(self, weight: Tensor) -> Tensor:
        if not isinstance(weight, nn.Parameter):  # made for this forward: the next one may lie at the same address
            return upsampling_kernel(weight)
        state = (weight.data_ptr(), weight._version, weight.dtype, weight.device, weight.stride())
        if self._kept is None or self._kept[0] != state:
            self._kept = (state, upsampling_kernel(weight.detach()).contiguous())
        return self._kept[1]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_kept": None}  # neither copied nor pickled

    def transposed_convolution(self) -> nn.ConvTranspose2d:
        """The same as a layer of torch's own."""
        conv = nn.ConvTranspose2d(
            self.in_channels, self.out_channels, 4, 2, 1, bias=self.bias is not None, device="meta"
        )
        conv.weight = nn.Parameter(upsampling_kernel(self.weight.detach()), self.weight.requires_grad)
        if self.bias is not None:
            conv.bias = nn.Parameter(self.bias.detach().clone(), self.bias.requires_grad)
        return conv.train(self.training)


KNOWN_FORWARDS.add(UpsampledConv2d._conv_forward)  # as linear in its weight as the convolution that it replaces


def fuse_upsampling(network: nn.Module) -> list[str]:
    """Let every 3x3 convolution directly behind a nearest x2 upsampling do that itself; returns their names.

    Pairs are found in the network's graph, whatever they are called. Parameters stay the same objects under the same
    names. Where a task's transform must see the upsampled input (parallel, both), the pair stays as it is.

    Args:
        network: Any network, with or without adapters; changed in place.

    Examples:
        >>> decoder = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3, padding=1))
        >>> fuse_upsampling(decoder)
        ['1']
    """
    pairs = upsampling_pairs(network)
    fuse_pairs(network, pairs)
    return [conv.removesuffix(".layer") for _, conv in pairs]


def fuse_pairs(network: nn.Module, pairs: Iterable[tuple[str, str]]) -> None:
    """Put an Identity in the place of every upsampling, and a convolution that upsamples in that of its convolution."""
    new: dict[nn.Module, nn.Module] = {}
    for upsampling, conv in pairs:
        new[network.get_submodule(upsampling)] = nn.Identity()
        new[network.get_submodule(conv)] = _upsampled(network.get_submodule(conv))
    replace_modules(network, new)


def unfuse_upsampling(network: nn.Module) -> None:
    """Write every convolution that upsamples its input itself as torch's own transposed convolution."""
    fused = [module for module in network.modules() if isinstance(module, UpsampledConv2d)]
    replace_modules(network, {conv: conv.transposed_convolution() for conv in fused})


def upsampling_pairs(network: nn.Module, graph: fx.Graph | None = None) -> list[tuple[str, str]]:
    """Names of the upsamplings and of the convolutions that alone read their outputs."""
    if not any(map(_doubles, network.modules())):  # known at once, while a graph takes its time
        return []
    graph = graph or _graph_of_base(network)
    if graph is None:
        return []
    calls = [node for node in graph.nodes if node.op == "call_module"]
    targets, bare, pairs = [str(node.target) for node in calls], read_bare(graph), []
    for node in calls:
        users = list(node.users)
        if not _doubles(network.get_submodule(str(node.target))) or len(users) != 1 or users[0].op != "call_module":
            continue
        upsampling, conv = str(node.target), str(users[0].target)
        once = targets.count(upsampling) == targets.count(conv) == 1
        if once and conv not in bare and _is_usual(network.get_submodule(conv)) and not _looks_at_input(network, conv):
            pairs.append((upsampling, conv))
    return pairs


def _graph_of_base(network: nn.Module) -> fx.Graph | None:
    """The graph without the transforms of whatever task is active."""
    with using_task(network, None) if named_banks(network) else contextlib.nullcontext():
        return trace(network)


def _doubles(module: nn.Module) -> bool:
    return isinstance(module, nn.Upsample) and module.mode == "nearest" and module.scale_factor in (2, 2.0, (2.0, 2.0))


def _is_usual(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    return (
        type(module) is nn.Conv2d
        and has_own_weight(module)
        and (module.kernel_size, module.stride, module.dilation) == ((3, 3), (1, 1), (1, 1))
        and module.padding in ((1, 1), "same")
        and module.padding_mode == "zeros"
        and module.groups == 1
    )


def _looks_at_input(network: nn.Module, name: str) -> bool:
    """Whether the layer is a bank's whose tasks see its input."""
    bank = network.get_submodule(name.removesuffix(".layer"))
    return isinstance(bank, TaskBank) and bank.mode in ("parallel", "both", "replace")


def _upsampled(conv: nn.Module) -> UpsampledConv2d:
    """The convolution itself, of the other class: the same parameters, hooks and mode."""
    fused = UpsampledConv2d.__new__(UpsampledConv2d)
    fused.__dict__ = conv.__dict__.copy()
    return fused
