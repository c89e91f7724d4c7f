"""Cost of one forward, counted at the layers: as the equations say (ws and wd apart), and as it is executed.

2 per multiply-add, 1 per bias, 2 per normalised element, 1 per activation. Sums of branches, pooling and resampling
are not counted.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from eftgan.adapters import TaskBank, Transform
from eftgan.adapters.graph import NORMS
from eftgan.adapters.transforms import Flops


def forward_flops(network: nn.Module, example: Tensor | tuple[int, ...]) -> Flops:
    """Cost of one input. The network is to be a copy: it is set to eval mode and loses its forward hooks."""
    for module in network.modules():
        module._forward_hooks.clear()  # the caller's: this forward is none of their business
    counts: list[Flops] = []
    transforms = [module for module in network.modules() if isinstance(module, Transform)]
    inside = {part for transform in transforms for part in transform.modules() if part is not transform}
    handles = [
        module.register_forward_hook(_counter(count, counts))
        for module in network.modules()
        if module not in inside and (count := _count_of(module)) is not None
    ]
    tensor = next(network.parameters())
    given = torch.zeros(1, *example, dtype=tensor.dtype) if isinstance(example, tuple) else example[:1]
    try:
        with torch.no_grad(), tensor.device:
            network.eval()(given.to(tensor.device))
    finally:
        for handle in handles:
            handle.remove()
    return Flops(sum(c.analytic for c in counts), sum(c.executed for c in counts))


def meta_copy(network: nn.Module) -> nn.Module:
    """A copy without data: shapes and types only, so that a forward costs no arithmetic."""
    empty: dict[int, Tensor] = {id(p): nn.Parameter(_shape_of(p), p.requires_grad) for p in network.parameters()}
    empty |= {id(b): _shape_of(b) for b in network.buffers()}
    return copy.deepcopy(network, empty)


def _shape_of(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta", requires_grad=False)


Count = Callable[..., int | Flops]  # (module, input, output) -> cost


def _counter(count: Count, counts: list[Flops]) -> Callable:
    def hook(module: nn.Module, inputs: tuple, output: Tensor | tuple) -> None:
        out = output[0] if isinstance(output, tuple) else output
        cost = count(module, inputs[0] if inputs else out, out)
        counts.append(cost if isinstance(cost, Flops) else Flops(cost, cost))

    return hook


def _count_of(module: nn.Module) -> Count | None:
    return next((count for kinds, count in COUNTS.items() if isinstance(module, kinds)), None)


def _convolution(conv: _ConvNd, x: Tensor, out: Tensor) -> int:
    # A transposed convolution multiplies once per input element, the others once per output element.
    taps = (x if isinstance(conv, _ConvTransposeNd) else out).numel() * conv.weight[0].numel()
    return 2 * taps + (out.numel() if conv.bias is not None else 0)


def _linear(linear: nn.Linear, x: Tensor, out: Tensor) -> int:
    return out.numel() * (2 * x.shape[-1] + (linear.bias is not None))


def _attention(attention: nn.MultiheadAttention, x: Tensor, out: Tensor) -> int:
    """Four projections (three in, one out), then scores and weighted values over a self-attended sequence."""
    tokens, width = out.numel() // out.shape[-1], out.shape[-1]
    length = out.shape[0 if out.ndim == 2 else int(attention.batch_first)]
    bias = attention.in_proj_bias is not None
    return 4 * tokens * width * (2 * width + bias) + 4 * tokens * length * width


def _weight_of_task(bank: TaskBank, x: Tensor, out: Tensor) -> int:
    """Mode "weight": what a task's weight costs; the layer that runs with it is counted like any other."""
    row = bank.registry.active
    return bank.transform(row).weight_flops() if bank.mode == "weight" and isinstance(row, dict) else 0


COUNTS: dict[tuple[type, ...], Count] = {
    (TaskBank,): _weight_of_task,
    (Transform,): lambda transform, x, out: transform.flops(x, out),
    (_ConvNd,): _convolution,
    (nn.Linear,): _linear,
    NORMS: lambda module, x, out: 2 * out.numel(),
    (nn.MultiheadAttention,): _attention,
    (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.GLU, nn.Tanh, nn.Sigmoid, nn.Hardswish,
     nn.Hardsigmoid, nn.PReLU, nn.Softplus, nn.Mish): lambda module, x, out: out.numel(),
}  # fmt: skip
