"""One task as a plain network: no banks, transforms in as few convolutions as possible, BatchNorm folded."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from eftgan.adapters.bank import TaskBank, named_banks, registry_of, unwrap
from eftgan.adapters.graph import batchnorm_after, trace
from eftgan.adapters.insert import padding_of, replace_modules
from eftgan.adapters.transforms import ConvTransform, LinearTransform, regroup
from eftgan.errors import UserError


@torch.no_grad()
def merge_task(model: nn.Module, name: str) -> nn.Module:
    """A copy of the network as one task sees it, in eval mode, made of torch's own layers only.

    Exact up to rounding. A serial 3x3 transform stays a layer of its own: behind a zero-padded convolution it has
    no equal single convolution at the border.
    """
    network, row = unwrap(model), registry_of(model).row(name)
    # deepcopy takes what stands in its memo for a copy: the banks, with all their tasks, are never copied.
    plain = {id(bank): _merge_bank(bank, bank.tasks[row[bank.part]]) for _, bank in named_banks(network)}
    merged = copy.deepcopy(network, plain).eval()
    fold_batchnorms(merged)
    return fast_layout(merged)


def fast_layout(network: nn.Module) -> nn.Module:
    """A network for inference alone, channels last: convolutions then pass their results on without reordering."""
    return network.requires_grad_(False).to(memory_format=torch.channels_last)


def _merge_bank(bank: TaskBank, task: nn.Module) -> nn.Module:
    if bank.mode == "replace":
        return copy.deepcopy(task)
    layer = _plain_copy(bank.layer)
    if isinstance(task, LinearTransform):
        return _scale_outputs(layer, task.scale)
    if bank.mode == "parallel":
        return _fold_parallel(layer, task)
    if task.spatial is None:
        return _compose_pointwise(layer, *task.fused_parameters())
    return nn.Sequential(layer, plain_convolution(task))


def plain_convolution(task: ConvTransform) -> nn.Conv2d:
    """A transform as one convolution (also where training runs two: behind one, BatchNorm folds)."""
    weight, bias, groups = task.fused_parameters()
    return _convolution(weight, bias, groups=groups, stride=task.stride, padding=weight.shape[-1] // 2)


def _plain_copy(layer: nn.Conv2d | nn.Linear) -> nn.Conv2d | nn.Linear:
    """A copy whose weight is a parameter, also where it was computed (spectral norm)."""
    layer = copy.deepcopy(layer).eval()
    if parametrize.is_parametrized(layer):
        make = _with_weights if isinstance(layer, nn.Conv2d) else _linear
        return make(layer, layer.weight, layer.bias)
    if "weight" not in layer._parameters:
        raise UserError(
            f"cannot merge {layer}: a hook computes its weight; use torch.nn.utils.parametrizations instead"
        )
    return layer


def _convolution(
    weight: Tensor,
    bias: Tensor | None,
    *,
    groups: int,
    stride: int | tuple[int, ...] = 1,
    padding: int | str | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    padding_mode: str = "zeros",
) -> nn.Conv2d:
    """A convolution with given weights."""
    conv = nn.Conv2d(
        weight.shape[1] * groups, weight.shape[0], weight.shape[2:], stride, padding, dilation, groups,
        bias is not None, padding_mode, device="meta",
    )  # fmt: skip
    conv.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        conv.bias = nn.Parameter(bias.detach().clone())
    return conv


def _linear(like: nn.Linear, weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(like.in_features, like.out_features, bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def _scale_outputs(layer: nn.Linear, scale: Tensor) -> nn.Linear:
    return _linear(layer, layer.weight * scale[:, None], None if layer.bias is None else layer.bias * scale)


def _compose_pointwise(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None, groups: int) -> nn.Module:
    """A group 1x1 behind a convolution is one convolution whose filters are mixed.

    Where the mixing crosses the convolution's own groups (a depthwise layer), one convolution would need wider
    groups and cost more than the two.
    """
    if groups % conv.groups:
        return nn.Sequential(conv, _convolution(weight, bias, groups=groups))
    filters = conv.weight.reshape(groups, -1, *conv.weight.shape[1:])  # (groups, b, C, kh, kw)
    mixing = weight.reshape(groups, -1, weight.shape[1])  # (groups, b, b)
    mixed = torch.einsum("goi,gichw->gochw", mixing, filters).reshape(conv.weight.shape)
    if conv.bias is not None:
        moved = torch.einsum("goi,gi->go", mixing, conv.bias.reshape(groups, -1)).reshape(-1)
        bias = moved if bias is None else bias + moved
    return _with_weights(conv, mixed, bias)


def _fold_parallel(conv: nn.Conv2d, task: ConvTransform) -> nn.Conv2d:
    """A parallel branch adds its taps to the convolution's own, in a kernel that covers both.

    A tap at offset o sees input[stride * i + o]: the convolution's offsets run from -padding to
    kernel - 1 - padding, the branch's from -1 to 1.
    """
    tau, tau_bias, tau_groups = task.fused_parameters()
    groups = math.gcd(conv.groups, tau_groups)
    padding = padding_of(conv)
    reach = tau.shape[-1] // 2
    before = [max(p, reach) for p in padding]
    after = [max(k - 1 - p, reach) for k, p in zip(conv.kernel_size, padding, strict=True)]

    def placed(weight: Tensor, own_groups: int, first: Sequence[int]) -> Tensor:
        """The weight in the common kernel; `first`: how far its taps reach before offset 0, per axis."""
        margins = []
        for axis in (1, 0):  # F.pad counts axes from the last
            lead = before[axis] - first[axis]
            margins += [lead, before[axis] + after[axis] + 1 - lead - weight.shape[2 + axis]]
        return F.pad(regroup(weight, own_groups, groups), margins)

    weight = placed(conv.weight, conv.groups, padding) + placed(tau, tau_groups, [reach, reach])
    biases = [bias for bias in (conv.bias, tau_bias) if bias is not None]
    return _convolution(
        weight, sum(biases) if biases else None, groups=groups, stride=conv.stride, padding=tuple(before)
    )


def _with_weights(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> nn.Conv2d:
    return _convolution(
        weight, bias, groups=conv.groups, stride=conv.stride, padding=conv.padding,
        dilation=conv.dilation, padding_mode=conv.padding_mode,
    )  # fmt: skip


def fold_batchnorms(model: nn.Module) -> None:
    """Fold each BatchNorm with running statistics into the layer that alone feeds it; Identity stays behind."""
    new: dict[nn.Module, nn.Module] = {}
    for layer_name, norm_name in batchnorm_after(model, trace(model)).items():
        layer, norm = model.get_submodule(layer_name), model.get_submodule(norm_name)
        if norm.running_mean is None or "weight" not in layer._parameters:
            continue
        if isinstance(layer, nn.Conv2d):
            new[layer] = fuse_conv_bn_eval(layer, norm)
        elif isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
            new[layer] = fuse_linear_bn_eval(layer, norm)
        else:
            continue
        new[norm] = nn.Identity()
    replace_modules(model, new)
