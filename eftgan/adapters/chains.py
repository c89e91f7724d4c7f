"""Layers one behind the other: which one a layer reads, and networks that are nothing but such a chain."""

import copy
from collections import Counter
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.graph import trace
from eftgan.adapters.layers import Layer, convolution, has_own_weight, outputs_of, weight_shape
from eftgan.adapters.wiring import CALLS_THAT_KEEP_ZERO, KEEPS_ZERO
from eftgan.errors import UserError

# What treats every channel alike, whatever their number. A flattened channel stays together.
CHANNELWISE = (*KEEPS_ZERO, nn.Sigmoid, nn.Softplus, nn.Hardsigmoid)
CALLS = {*CALLS_THAT_KEEP_ZERO, torch.sigmoid, F.sigmoid, F.softplus, F.hardswish}
METHODS = {"relu", "tanh", "sigmoid", "flatten", "contiguous"}


@dataclass(frozen=True)
class Link:
    """A layer of a chain."""

    name: str
    layer: Layer
    positions: int  # input features per output of the layer before it: the pixels of a flattened map, else 1
    norm: str | None = None  # the BatchNorm that reads its output


def inputs_of(layer: Layer) -> int:
    """Input channels of a convolution, input features of a linear layer."""
    return layer.in_channels if isinstance(layer, _ConvNd) else layer.in_features


def layers_before(network: nn.Module) -> dict[Layer, Layer | None]:
    """Every layer that is called once, with the layer whose output it reads; None for the network's input.

    Where branches come together, the first of them is followed.
    """
    graph = trace(network)
    if graph is None:
        raise UserError(f"{type(network).__name__} cannot be followed by torch.fx, so its layers cannot be ordered")
    calls = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    found: dict[Layer, Layer | None] = {}
    for node in graph.nodes:
        layer = _layer(node, network)
        if layer is not None and calls[str(node.target)] == 1:
            found[layer] = _before(node, network)
    return found


def _layer(node: fx.Node, network: nn.Module) -> Layer | None:
    if node.op != "call_module":
        return None
    module = network.get_submodule(str(node.target))
    return module if isinstance(module, _ConvNd | nn.Linear) else None


def _before(node: fx.Node, network: nn.Module) -> Layer | None:
    while node.all_input_nodes:
        node = node.all_input_nodes[0]
        if (layer := _layer(node, network)) is not None:
            return layer
    return None


def chain_of(network: nn.Module, reason: str) -> list[Link]:
    """The layers of a network that is a chain, from input to output; others are refused.

    reason: why a chain is needed: the beginning of the message.
    """
    graph = trace(network)
    if graph is None:
        raise UserError(f"{reason}; torch.fx cannot follow {type(network).__name__}")
    links: list[Link] = []
    before: fx.Node | None = None
    for node in graph.nodes:
        if before is not None and (node.all_input_nodes != [before] or len(before.users) != 1):
            raise UserError(f"{reason}; in {type(network).__name__}, {node.name} is not fed by {before.name} alone")
        _add(node, network, links, reason)
        before = node
    return links


def _add(node: fx.Node, network: nn.Module, links: list[Link], reason: str) -> None:
    """Take one more operation of a chain, a layer or something that leaves the channels alone."""
    layer = _layer(node, network)
    if layer is not None:
        outputs = outputs_of(links[-1].layer) if links else inputs_of(layer)
        tied = isinstance(layer, _ConvNd) and (layer.groups != 1 or layer.transposed)
        seen = any(layer is link.layer for link in links)
        if has_own_weight(layer) and not tied and not seen and inputs_of(layer) % outputs == 0:
            links.append(Link(str(node.target), layer, inputs_of(layer) // outputs))
            return
    elif node.op == "call_module":
        module = network.get_submodule(str(node.target))
        if isinstance(module, _BatchNorm) and links and links[-1].norm is None:
            last = links.pop()
            if module.num_features == outputs_of(last.layer):
                links.append(Link(last.name, last.layer, last.positions, str(node.target)))
                return
        if isinstance(module, CHANNELWISE):
            return
    elif node.op in ("placeholder", "output") or node.target in CALLS or node.target in METHODS:
        return
    what = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.name)
    raise UserError(f"{reason}; {type(network).__name__} has {what} between or in the place of simple layers")


def resized(layer: Layer, inputs: int, outputs: int) -> Layer:
    """A new layer of the same kind for other numbers of inputs and outputs; one of the same size is a copy."""
    if (inputs, outputs) == (inputs_of(layer), outputs_of(layer)):
        return copy.deepcopy(layer)
    if isinstance(layer, nn.Linear):
        return nn.Linear(inputs, outputs, layer.bias is not None)
    empty = torch.empty(outputs, inputs, *weight_shape(layer)[2:])
    made = convolution(
        empty, None if layer.bias is None else torch.empty(outputs), groups=1, stride=layer.stride,
        padding=layer.padding, dilation=layer.dilation, padding_mode=layer.padding_mode,
    )  # fmt: skip
    made.reset_parameters()
    return made
