"""Which normalisation layer directly follows which layer, as far as the network's graph can be seen."""

import itertools
from collections import Counter

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from eftgan.adapters.bank import TaskBank


class _LeafTracer(fx.Tracer):
    """Keeps banks whole, beside torch's own layers."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, TaskBank) or super().is_leaf_module(module, name)


def batchnorm_after(model: nn.Module) -> dict[str, str]:
    """Name of a module -> name of the BatchNorm that is the only user of its output.

    Read from torch.fx where the network can be traced, else from neighbours in nn.Sequential: there too the
    first's output goes nowhere but into the second. Modules that are called twice are left out.
    """
    try:
        return _pairs_by_graph(model)
    except Exception:  # control flow that depends on data: torch.fx raises whatever it meets
        return _pairs_by_sequence(model)


def _is_batchnorm(module: nn.Module) -> bool:
    return isinstance(module.layer if isinstance(module, TaskBank) else module, _BatchNorm)


def _pairs_by_graph(model: nn.Module) -> dict[str, str]:
    nodes = [node for node in _LeafTracer().trace(model).nodes if node.op == "call_module"]
    calls = Counter(node.target for node in nodes)
    pairs = {}
    for node in nodes:
        source = node.args[0] if node.args else None
        if (
            _is_batchnorm(model.get_submodule(node.target))
            and isinstance(source, fx.Node)
            and source.op == "call_module"
            and len(source.users) == 1
            and calls[node.target] == calls[source.target] == 1
        ):
            pairs[source.target] = node.target
    return pairs


def _pairs_by_sequence(model: nn.Module) -> dict[str, str]:
    seen = Counter(id(child) for parent in model.modules() for child in parent._modules.values())
    pairs = {}
    for name, parent in model.named_modules():
        if type(parent) is not nn.Sequential:
            continue
        children = list(parent.named_children())
        for (first, layer), (second, norm) in itertools.pairwise(children):
            if _is_batchnorm(norm) and seen[id(layer)] == seen[id(norm)] == 1:
                prefix = f"{name}." if name else ""
                pairs[prefix + first] = prefix + second
    return pairs
