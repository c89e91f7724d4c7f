"""Which gates stand behind which layer, and through which gates the layer's inputs came.

A closed gate makes a channel exactly zero. It stays zero through activations that map 0 to 0, pooling, dropout and
flattening, and a sum of two branches is zero where both are; anything else may fill it again.
"""

import operator
from collections import Counter
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd

from eftgan.adapters.bank import TaskBank, named_banks
from eftgan.adapters.gates import Gate
from eftgan.adapters.graph import batchnorm_after, trace
from eftgan.adapters.layers import Layer, outputs_of
from eftgan.adapters.tasks import using_task
from eftgan.errors import UserError

KEEPS_ZERO = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Hardswish,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
CALLS_THAT_KEEP_ZERO = {
    F.relu, F.relu6, F.leaky_relu, F.elu, F.gelu, F.silu, F.tanh, F.dropout, F.max_pool2d, F.avg_pool2d,
    F.adaptive_avg_pool2d, F.adaptive_max_pool2d, torch.relu, torch.tanh, torch.flatten,
}  # fmt: skip
SUMS = {operator.add, operator.iadd, torch.add}


@dataclass(frozen=True)
class GatedLayer:
    """A layer and its gates, all by their names in the adapted network."""

    name: str  # its parameters are name.weight and, where it has one, name.bias
    layer: Layer
    gate: str  # the bank behind it
    inputs: frozenset[str] | None  # banks whose open channels it reads, in one sum; None: not known, or no gates

    def entries(self, outputs: Tensor, inputs: Tensor | None) -> Tensor:
        """A mask of its weight: True from each of these inputs (None: all of them) to each of these outputs."""
        layer, groups = self.layer, self.layer.groups if isinstance(self.layer, _ConvNd) else 1
        count = layer.in_channels if isinstance(layer, _ConvNd) else layer.in_features
        if inputs is None or count % len(inputs):
            inputs = torch.ones(count, dtype=torch.bool, device=outputs.device)
        inputs = inputs.repeat_interleave(count // len(inputs))  # a flattened channel stands for all its pixels
        to, by = outputs.view(groups, -1), inputs.view(groups, -1)
        if isinstance(layer, _ConvNd) and layer.transposed:
            to, by = by, to
        pairs = (to[:, :, None] & by[:, None, :]).flatten(0, 1)
        return pairs.reshape(*pairs.shape, *(1 for _ in layer.weight.shape[2:])).expand(layer.weight.shape)


def gated_layers(network: nn.Module) -> list[GatedLayer]:
    """Every layer with a gate of its own, of a network whose transforms are all gates."""
    gates = {name: bank for name, bank in named_banks(network) if bank.part == "transforms"}
    with using_task(network, None):
        graph = trace(network)
    if graph is None:
        raise UserError(f"{type(network).__name__} cannot be followed by torch.fx, so its units cannot be gated")
    norms = batchnorm_after(network, graph)
    nodes = [node for node in graph.nodes if node.op == "call_module"]
    calls = Counter(str(node.target) for node in nodes)
    found = []
    for node in nodes:
        name = str(node.target)
        layer, gate = network.get_submodule(name), _gate_over(norms.get(name, name), gates)
        if (
            isinstance(layer, _ConvNd | nn.Linear)
            and gate is not None
            and outputs_of(layer) == channels_of(gates[gate])
        ):
            inputs = _sources(node.args[0], network, gates) if calls[name] == 1 else None
            alike = inputs is not None and len({channels_of(gates[each]) for each in inputs}) == 1
            found.append(GatedLayer(name, layer, gate, inputs if alike else None))
    return found


def channels_of(bank: TaskBank) -> int:
    """Channels of a bank of gates."""
    module = next(iter(bank.tasks.values()), None) or bank.new_module()
    assert isinstance(module, Gate)
    return module.channels


def _gate_over(name: str, gates: dict[str, TaskBank]) -> str | None:
    return next((gate for gate in gates if name.startswith(f"{gate}.")), None)


def _sources(value: object, network: nn.Module, gates: dict[str, TaskBank]) -> frozenset[str] | None:
    """Gates that a value came through, all of them in a sum; None where something else may be in it."""
    if not isinstance(value, fx.Node):
        return None
    if value.op == "call_module":
        if (gate := _gate_over(str(value.target), gates)) is not None:
            return frozenset({gate})
        keeps = isinstance(network.get_submodule(str(value.target)), KEEPS_ZERO)
    elif value.op == "call_function" and value.target in SUMS:
        branches = [_sources(branch, network, gates) for branch in value.args[:2]]
        known = [branch for branch in branches if branch is not None]
        return frozenset().union(*known) if len(known) == 2 else None
    else:
        keeps = value.op == "call_function" and value.target in CALLS_THAT_KEEP_ZERO
    return _sources(value.args[0], network, gates) if keeps and value.args else None
