"""Put task banks into any network from outside: layers are found by type, never by name or index."""

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from eftgan.adapters.bank import PARTS, Part, TaskBank, Tasks, is_distributed
from eftgan.adapters.graph import LAYERS, NORMS, batchnorm_after, batchnorm_beside, read_bare, trace
from eftgan.adapters.transforms import ConvTransform, LinearTransform, check_group_sizes
from eftgan.errors import UserError

# Their forward hands the weights of their inner layers to one fused call, so an inner bank would never run.
OPAQUE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


@dataclass(frozen=True)
class AdapterConfig:
    """Which transformation goes where. Patterns are shell-style and match dotted module names."""

    a: int = 8  # group size of the 3x3 convolution; 0 leaves it out
    b: int = 16  # group size of the 1x1 convolution; 0 leaves it out
    mode: Literal["serial", "parallel"] = "serial"
    bias: bool = True
    heads: tuple[str, ...] = ()  # layers that are wholly per task, without an adapter
    exclude: tuple[str, ...] = ()  # convolutions and linear layers that stay shared
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # pattern -> (a, b) in place of the above
    parts: tuple[Part, ...] = PARTS  # which parts get banks

    def __post_init__(self) -> None:
        for a, b in [(self.a, self.b), *self.sizes.values()]:
            check_group_sizes(a, b)
        if self.mode not in ("serial", "parallel"):
            raise UserError(f"mode must be serial or parallel, got {self.mode!r}")
        if unknown := set(self.parts) - set(PARTS):
            raise UserError(f"unknown parts {sorted(unknown)}; choose from {', '.join(PARTS)}")
        for key in ("heads", "exclude"):
            if isinstance(getattr(self, key), str):
                raise UserError(f"{key} takes several patterns: write ({getattr(self, key)!r},)")

    def group_sizes(self, name: str) -> tuple[int, int]:
        return next((ab for p, ab in self.sizes.items() if fnmatch.fnmatchcase(name, p)), (self.a, self.b))


@dataclass
class Insertion:
    """What insert_adapters did: names of layers by part, and what stays shared with the reason."""

    transforms: list[str] = field(default_factory=list)
    norms: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{part}: {len(getattr(self, part))} layers" for part in PARTS]
        return "\n".join(lines + [f"shared: {name} ({why})" for name, why in self.shared.items()])


def insert_adapters(model: nn.Module, config: AdapterConfig | None = None) -> Insertion:
    """Replace layers of `model` in place by task banks. No task exists yet, so outputs are unchanged."""
    config = config or AdapterConfig()
    if any(isinstance(module, TaskBank) for module in model.modules()):
        raise UserError(f"{type(model).__name__} has adapters already")
    if is_distributed(model):
        raise UserError("insert adapters before the network is wrapped by DistributedDataParallel")
    insertion, registry = Insertion(), Tasks(config)
    banks: dict[nn.Module, TaskBank] = {}
    graph = trace(model)
    followed_by_norm: dict[str, str] = {}
    if "norms" in config.parts:
        followed_by_norm = batchnorm_beside(model) if graph is None else batchnorm_after(model, graph)
    for name, module in _candidates(model, read_bare(graph), insertion):
        plan = _plan_bank(name, module, config, followed_by_norm, insertion)
        if plan is not None and plan[0] in config.parts:
            part, mode, make = plan
            banks[module] = TaskBank(module, registry, part, mode, make)
            getattr(insertion, part).append(name)
    _check_heads_found(config, insertion)
    if not banks:
        raise UserError(f"{type(model).__name__} has no layer that {', '.join(config.parts)} could be put on")
    replace_modules(model, banks)
    return insertion


def replace_modules(model: nn.Module, new: Mapping[nn.Module, nn.Module]) -> None:
    """Put new modules in the place of old ones, under every name that they have."""
    for parent in list(model.modules()):
        for child_name, child in list(parent._modules.items()):
            if child in new:
                setattr(parent, child_name, new[child])


def _candidates(model: nn.Module, bare: set[str], insertion: Insertion) -> Iterator[tuple[str, nn.Module]]:
    """Layers that could take a bank, each once; what could not is noted as shared."""
    opaque: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(opaque):
            continue
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
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


def _plan_bank(
    name: str,
    module: nn.Module,
    config: AdapterConfig,
    followed_by_norm: dict[str, str],
    insertion: Insertion,
) -> tuple[Part, str, partial | None] | None:
    """Part, mode and maker of the bank that this layer gets; None where it stays as it is."""
    if isinstance(module, NORMS):
        return ("norms", "replace", None) if module.state_dict() else None
    if _matches(name, config.heads):
        return "heads", "replace", None
    if _matches(name, config.exclude):
        insertion.shared[name] = "excluded"
        return None
    if isinstance(module, nn.Linear):
        if name in followed_by_norm:
            insertion.shared[name] = "the per-task BatchNorm behind it would undo a scale"
            return None
        return "transforms", "serial", partial(LinearTransform, module.out_features)
    return "transforms", config.mode, _conv_maker(name, module, config)


def _conv_maker(name: str, conv: nn.Conv2d, config: AdapterConfig) -> partial:
    a, b = config.group_sizes(name)
    if config.mode == "serial":
        return partial(ConvTransform, conv.out_channels, conv.out_channels, a, b, bias=config.bias)
    if not branch_matches(conv):
        raise UserError(
            f"parallel adapters do not fit {name}: a 3x3 branch with zero padding 1 gives another output size than "
            f"{conv}; exclude it or use mode: serial"
        )
    return partial(
        ConvTransform, conv.in_channels, conv.out_channels, a, b,
        bias=config.bias, parallel=True, stride=conv.stride,
    )  # fmt: skip


def branch_matches(conv: nn.Conv2d) -> bool:
    """Whether a 3x3, zero-padded branch of the same stride has this convolution's output size and folds into it.

    Output size: floor((input + 2 padding - kernel) / stride) + 1. Inputs that are multiples of the stride decide.
    """
    if conv.dilation != (1, 1) or conv.padding_mode != "zeros":
        return False
    if conv.padding == "same":
        return all(kernel % 2 for kernel in conv.kernel_size)
    sides = zip(conv.kernel_size, conv.stride, padding_of(conv), strict=True)
    return all((2 * padding - kernel) // stride == (2 - 3) // stride for kernel, stride, padding in sides)


def padding_of(conv: nn.Conv2d) -> tuple[int, ...]:
    """Zeros before the first element of each axis, as numbers (dilation 1)."""
    if isinstance(conv.padding, str):
        return tuple(kernel // 2 if conv.padding == "same" else 0 for kernel in conv.kernel_size)
    return tuple(conv.padding)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _check_heads_found(config: AdapterConfig, insertion: Insertion) -> None:
    for pattern in config.heads:
        if "heads" in config.parts and not any(fnmatch.fnmatchcase(name, pattern) for name in insertion.heads):
            raise UserError(f"head {pattern!r} names no convolution or linear layer of the network")
