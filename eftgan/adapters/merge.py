"""One task as a network of its own: plain layers without banks where that can be, BatchNorm folded into them."""

import copy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from eftgan.adapters.bank import Row, TaskBank, Tasks, named_banks, registry_of, unwrap
from eftgan.adapters.codes import fuse_codes
from eftgan.adapters.gates import Gate
from eftgan.adapters.graph import batchnorm_after, trace
from eftgan.adapters.hypernetwork import Hypernetwork
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.layers import NotMergeable, computes_as_torch, has_own_weight, plain_copy, set_weights
from eftgan.adapters.upsampling import fuse_upsampling, unfuse_upsampling


@torch.no_grad()
def merge_task(model: nn.Module, name: str) -> nn.Module:
    """A copy of the network as one task sees it, in eval mode, made of torch's own layers, and gates where it has any.

    Exact up to rounding: BatchNorm is folded into the layer before it, upsampling into the convolution behind it.

    Args:
        model: A network with adapters; it stays as it is.
        name: The task.

    Raises:
        NotMergeable: If a transform has no such form; `inference_network` then keeps the adapters.

    Examples:
        >>> plain = merge_task(net, "birds")
        >>> any("Bank" in type(module).__name__ for module in plain.modules())
        False
    """
    network = unwrap(model)
    # deepcopy takes what stands in its memo for a copy: the banks, with all their tasks, are never copied.
    merged = copy.deepcopy(network, _merged_banks(network, name)).eval()
    fold_batchnorms(merged)
    fuse_codes(merged)
    fuse_upsampling(merged)
    unfuse_upsampling(merged)
    return fast_layout(merged)


def mergeable(model: nn.Module, name: str) -> bool:
    """Whether a task can be merged."""
    try:
        _merged_banks(unwrap(model), name)
    except NotMergeable:
        return False
    return True


def inference_network(model: nn.Module, name: str) -> nn.Module:
    """A copy of the network for one task, in eval mode: merged, or, where that cannot be, with this task alone.

    A task that reads those before it keeps these.

    Args:
        model: A network with adapters; it stays as it is.
        name: The task.
    """
    try:
        return merge_task(model, name)
    except NotMergeable:
        return only_task(model, name)


def only_task(model: nn.Module, name: str) -> nn.Module:
    """A copy of the network whose banks know one task, which is active, and those before it where it reads them."""
    network, registry = unwrap(model), registry_of(model)
    registry.row(name)
    names = list(registry.rows)
    reads_earlier = any(bank.reads_earlier for _, bank in named_banks(network))
    kept = names[: names.index(name) + 1] if reads_earlier else [name]
    alone = Tasks(registry.config)
    alone.rows, alone.made = {each: dict(registry.rows[each]) for each in kept}, registry.made
    alone.active = alone.rows[name]
    # The same use of deepcopy's memo as above: the modules of other tasks are never copied.
    memo: dict[int, object] = {id(registry): alone}
    for _, bank in named_banks(network):
        keys = dict.fromkeys(row[bank.part] for row in alone.rows.values())
        memo[id(bank.tasks)] = nn.ModuleDict({key: copy.deepcopy(bank.tasks[key]) for key in keys})
    return copy.deepcopy(network, memo).eval().requires_grad_(False)


@torch.no_grad()
def _merged_banks(network: nn.Module, name: str) -> dict[int, nn.Module]:
    """By the id of each bank, the plain module that does one task's work; and what it needs no longer."""
    row = registry_of(network).row(name)
    return {id(bank): merged_bank(bank, row) for _, bank in named_banks(network)} | without_hypernetwork(network)


def without_hypernetwork(network: nn.Module) -> dict[int, nn.Module]:
    """For deepcopy's memo: nothing in the place of what has written the weights."""
    return {id(module): nn.Identity() for module in network.modules() if isinstance(module, Hypernetwork)}


def merged_bank(bank: TaskBank, row: Row) -> nn.Module:
    """A bank's layer as a task sees it, in plain layers."""
    if bank.part != "transforms":
        return copy.deepcopy(bank.task(row))
    transform = bank.transform(row)
    if isinstance(transform, Gate):
        return transform.merged(_before_gate(bank.layer, row))
    layer = plain_copy(bank.layer)
    if bank.mode == "weight":
        return set_weights(layer, *bank.tensors_of(row))
    return transform.merged(layer)


def _before_gate(layer: nn.Module, row: Row) -> nn.Module:
    return merged_bank(layer, row) if isinstance(layer, TaskBank) else copy.deepcopy(layer).eval()


def fast_layout(network: nn.Module) -> nn.Module:
    """A network for inference alone, channels last: convolutions then pass their results on without reordering."""
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)
    return network.requires_grad_(False)


def fold_batchnorms(model: nn.Module) -> None:
    """Fold each BatchNorm with running statistics into the layer that alone feeds it; Identity stays behind."""
    new: dict[nn.Module, nn.Module] = {}
    for layer_name, norm_name in batchnorm_after(model, trace(model)).items():
        layer, norm = model.get_submodule(layer_name), model.get_submodule(norm_name)
        if (both := with_batchnorm(layer, norm)) is not None:
            new[layer], new[norm] = both, nn.Identity().eval()
    replace_modules(model, new)


def with_batchnorm(layer: nn.Module, norm: nn.Module) -> nn.Module | None:
    """A layer with the BatchNorm behind it in its weights (both in eval mode); None where that is not possible."""
    if not isinstance(norm, _BatchNorm) or norm.running_mean is None:
        return None
    if not has_own_weight(layer) or not computes_as_torch(layer):
        return None
    if isinstance(layer, nn.Linear):
        return fuse_linear_bn_eval(layer, norm) if isinstance(norm, nn.BatchNorm1d) else None
    if not isinstance(layer, _ConvNd) or (layer.transposed and layer.groups > 1):
        return None
    return fuse_conv_bn_eval(layer, norm, layer.transposed)
