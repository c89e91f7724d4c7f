"""Put task banks into any network from outside: layers are found by type, never by name or index."""

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from eftgan.adapters.bank import TaskBank, Tasks, is_distributed
from eftgan.adapters.config import PARTS, AdapterConfig, Part
from eftgan.adapters.gates import GATES
from eftgan.adapters.graph import LAYERS, NORMS, batchnorm_after, batchnorm_beside, read_bare, trace
from eftgan.adapters.layers import Layer, axes_of, has_own_weight, outputs_of
from eftgan.adapters.spectral import rest_when_frozen
from eftgan.adapters.transforms import Mode, Site, Transform
from eftgan.errors import UserError

# Their forward hands the weights of their inner layers to one fused call, so an inner bank would never run.
OPAQUE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


@dataclass
class Insertion:
    """What insert_adapters did: names of layers by part, and what stays shared with the reason."""

    transforms: list[str] = field(default_factory=list)
    norms: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    gates: list[str] = field(default_factory=list)  # layers and norms that one stands behind
    shared: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{part}: {len(getattr(self, part))} layers" for part in PARTS]
        if self.gates:
            lines.append(f"gates: behind {len(self.gates)} layers")
        return "\n".join(lines + [f"shared: {name} ({why})" for name, why in self.shared.items()])


def insert_adapters(model: nn.Module, config: AdapterConfig | None = None) -> Insertion:
    """Replace layers of `model` in place by task banks. No task exists yet, so outputs are unchanged.

    Layers are found by type: convolutions of one to three axes (transposed ones too), linear layers, normalisations.

    Args:
        model: Any network; not yet wrapped by DistributedDataParallel, and with the shapes of lazy layers known.
        config: Which adapters, and where; default: EFT with a8 b16 on every layer, and no heads.

    Returns:
        Names of the layers that got transforms, normalisation and heads per task, and what stays shared with the
            reason; `print` shows it.

    Examples:
        >>> import torchvision
        >>> from eftgan import AdapterConfig, insert_adapters
        >>> net = torchvision.models.resnet18(num_classes=10)
        >>> print(insert_adapters(net, AdapterConfig(a=8, b=16, heads=("fc",))))
        transforms: 20 layers
        norms: 20 layers
        heads: 1 layers
    """
    config = config or AdapterConfig()
    if any(isinstance(module, TaskBank) for module in model.modules()):
        raise UserError(f"{type(model).__name__} has adapters already")
    if is_distributed(model):
        raise UserError("insert adapters before the network is wrapped by DistributedDataParallel")
    insertion, registry = Insertion(), Tasks(config)
    banks: dict[nn.Module, TaskBank] = {}
    gated: dict[str, Layer] = {}
    graph = trace(model)
    norm_after = batchnorm_beside(model) if graph is None else batchnorm_after(model, graph)
    followed_by_norm = norm_after if "norms" in config.parts else {}
    for name, module in _candidates(model, read_bare(graph), insertion):
        plan = _plan_bank(name, module, config, followed_by_norm, insertion)
        if plan is not None and plan.part in config.parts:
            banks[module] = TaskBank(module, registry, plan.part, plan.mode, plan.make)
            getattr(insertion, plan.part).append(name)
        if isinstance(module, _ConvNd | nn.Linear) and not _matches(name, config.heads + config.exclude):
            gated[name] = module
    if config.gate:
        _add_gates(model, gated, norm_after, registry, banks, insertion)
    _check_heads_found(config, insertion)
    if not banks:
        raise UserError(f"{type(model).__name__} has no layer that {', '.join(config.parts)} could be put on")
    replace_modules(model, banks)
    rest_when_frozen(model)
    return insertion


def _add_gates(
    model: nn.Module,
    layers: Mapping[str, Layer],
    norm_after: Mapping[str, str],
    registry: Tasks,
    banks: dict[nn.Module, TaskBank],
    insertion: Insertion,
) -> None:
    """Put banks of gates around the norms behind the layers, or around layers without one, and their banks."""
    kind = GATES[registry.config.gate]
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear) and not kind.on_linear:
            continue
        place = norm_after.get(name, name)
        gated = model.get_submodule(place)
        axes = axes_of(layer) if isinstance(layer, _ConvNd) else 0
        make = partial(kind, outputs_of(layer), axes, normed=place != name)
        banks[gated] = TaskBank(banks.get(gated, gated), registry, "transforms", "serial", make)
        insertion.gates.append(place)


def replace_modules(model: nn.Module, new: Mapping[nn.Module, nn.Module]) -> None:
    """Put new modules in the place of old ones, under every name that they have."""
    for parent in list(model.modules()):
        for child_name, child in list(parent._modules.items()):
            if child is not None and child in new:
                setattr(parent, child_name, new[child])


def layer_names(model: nn.Module) -> list[str]:
    """Names of the convolutions and linear layers, as they were before banks came around them."""
    banks = {name for name, module in model.named_modules() if isinstance(module, TaskBank)}
    names = []
    for name, module in model.named_modules():
        if isinstance(module, _ConvNd | nn.Linear) and not any(name.startswith(f"{bank}.tasks.") for bank in banks):
            while name.removesuffix(".layer") in banks and name not in banks:
                name = name.removesuffix(".layer")
            names.append(name)
    return names


def _candidates(model: nn.Module, bare: set[str], insertion: Insertion) -> Iterator[tuple[str, nn.Module]]:
    """Layers that could take a bank, each once; what could not is noted as shared."""
    opaque: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(opaque):
            continue
        if any(is_lazy(tensor) for tensor in (*module._parameters.values(), *module._buffers.values())):
            raise UserError(f"{name} is a lazy layer without a shape yet; run the network once before inserting")
        if isinstance(module, OPAQUE):
            opaque += (f"{name}." if name else "",)
            insertion.shared[name] = "its weights are used without the forward of its inner layers"
        elif isinstance(module, LAYERS) and name and name in bare:
            insertion.shared[name] = "its weights are used without its forward"
        elif isinstance(module, LAYERS):
            if not name:
                raise UserError(
                    f"a lone {type(module).__name__} has no parent to hold its bank; wrap it in nn.Sequential"
                )
            if parametrize.is_parametrized(module):
                opaque += (f"{name}.parametrizations.",)  # part of the layer, not a layer
            yield name, module
        elif module._parameters or module._buffers:
            insertion.shared[name or type(module).__name__] = f"no transformation for {type(module).__name__}"


class _BankPlan(NamedTuple):
    part: Part
    mode: Mode
    make: Callable[[], Transform] | None = None


def _plan_bank(
    name: str,
    module: nn.Module,
    config: AdapterConfig,
    followed_by_norm: dict[str, str],
    insertion: Insertion,
) -> _BankPlan | None:
    """The bank that this layer gets; None where it stays as it is."""
    if isinstance(module, NORMS):
        return _BankPlan("norms", "replace") if module.state_dict() else None
    if _matches(name, config.heads):
        return _BankPlan("heads", "replace")
    if _matches(name, config.exclude):
        insertion.shared[name] = "excluded"
        return None
    assert isinstance(module, _ConvNd | nn.Linear)
    plan = config.planner().plan(Site(name, module, config, norm_follows=name in followed_by_norm))
    if not isinstance(plan, str) and plan.mode == "weight" and not has_own_weight(module):
        plan = "its weight is computed, so that a task cannot put its own in the place"
    if isinstance(plan, str):
        insertion.shared[name] = plan
        return None
    return _BankPlan("transforms", plan.mode, plan.make)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _check_heads_found(config: AdapterConfig, insertion: Insertion) -> None:
    for pattern in config.heads:
        if "heads" in config.parts and not any(fnmatch.fnmatchcase(name, pattern) for name in insertion.heads):
            raise UserError(f"head {pattern!r} names no convolution or linear layer of the network")
