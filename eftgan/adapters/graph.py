"""What a network's graph tells: which BatchNorm directly follows which layer, and which weights are read bare."""

import itertools
from collections import Counter

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from eftgan.adapters.layers import outputs_of

NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm)
LAYERS = (_ConvNd, nn.Linear, *NORMS)


class _LayerTracer(fx.Tracer):
    """Does not look into layers, also not where a network has its own subclasses of them."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, LAYERS) or super().is_leaf_module(module, name)


def trace(network: nn.Module) -> fx.Graph | None:
    """The network's graph with layers as leaves; None where torch.fx cannot follow it."""
    try:
        return _LayerTracer().trace(network)
    except Exception:  # control flow that depends on data: torch.fx raises whatever it meets
        return None


def read_bare(graph: fx.Graph | None) -> set[str]:
    """Modules whose parameters are used by someone else than their own forward, as far as can be seen."""
    if graph is None:
        return set()
    return {str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}


def batchnorm_after(network: nn.Module, graph: fx.Graph | None) -> dict[str, str]:
    """Name of a module -> name of the BatchNorm that is the only user of its output.

    Modules that are called twice, or whose parameters are read bare, are left out.
    """
    if graph is None:
        return {}
    nodes = [node for node in graph.nodes if node.op == "call_module"]
    calls = Counter(str(node.target) for node in nodes)
    bare = read_bare(graph)
    pairs: dict[str, str] = {}
    for node in nodes:
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or source.op != "call_module":
            continue
        layer, norm = str(source.target), str(node.target)
        if (
            _same_features(network.get_submodule(layer), network.get_submodule(norm))
            and len(source.users) == 1
            and calls[norm] == calls[layer] == 1
            and bare.isdisjoint((norm, layer))
        ):
            pairs[layer] = norm
    return pairs


def batchnorm_beside(network: nn.Module) -> dict[str, str]:
    """The same by neighbourhood in nn.Sequential, for networks without a graph.

    A guess: someone may look at a value in between. So it serves where either answer is right.
    """
    seen = Counter(id(child) for parent in network.modules() for child in parent._modules.values())
    pairs = {}
    for name, parent in network.named_modules():
        if type(parent) is not nn.Sequential:
            continue
        children = list(parent.named_children())
        for (first, layer), (second, norm) in itertools.pairwise(children):
            if _same_features(layer, norm) and seen[id(layer)] == seen[id(norm)] == 1:
                prefix = f"{name}." if name else ""
                pairs[prefix + first] = prefix + second
    return pairs


def _same_features(layer: nn.Module, norm: nn.Module) -> bool:
    """Whether `norm` is a BatchNorm over the outputs of a convolution or linear layer, not over another axis."""
    if not isinstance(norm, _BatchNorm) or not isinstance(layer, _ConvNd | nn.Linear):
        return False
    return norm.num_features == outputs_of(layer)
