"""What one more task costs: parameters, FLOPs and bytes against the base network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from eftgan.adapters import (
    PARTS,
    AdapterConfig,
    TaskBank,
    add_task,
    insert_adapters,
    named_banks,
    own_transforms,
    registry_of,
    select_task,
    shared_state,
    task_state,
)
from eftgan.adapters.bank import Row, unwrap
from eftgan.adapters.transforms import Option
from eftgan.evaluation.flops import forward_flops, meta_copy

Example = Tensor | tuple[int, ...]  # an input batch, or the shape of one input


@dataclass(frozen=True)
class LayerGrowth:
    """The transform at one layer."""

    name: str
    outputs: int  # of the layer
    parameters: int  # of the transform
    bits: int  # of its mask, which has no parameters
    description: Mapping[str, Option]  # what the transform says of itself: its kind, then its sizes

    @property
    def kind(self) -> str:
        return str(self.description["kind"])

    @property
    def sizes(self) -> dict[str, Option]:
        """Numbers of the description: an EFT's effective group sizes a and b."""
        return {key: value for key, value in self.description.items() if not isinstance(value, str)}


@dataclass(frozen=True)
class Growth:
    """Counts of a base network and of one task on it; sums of several networks add up field by field."""

    base_parameters: int = 0  # of the network before adapters came in
    shared_parameters: int = 0  # those that tasks use: not of layers that are only the pattern of a task's own
    adapter_parameters: int = 0  # ws, wd, their biases, diagonals
    adapter_bits: int = 0  # of masks, which have no parameters
    norm_parameters: int = 0
    head_parameters: int = 0
    flops_base: int = 0  # one input through the base network
    flops_task: int = 0  # one input through the task's, ws and wd counted apart
    flops_executed: int = 0  # the same as it runs: ws and wd in one convolution where they fuse
    bytes_base: int = 0  # tensors on disk
    bytes_task: int = 0
    layers: tuple[LayerGrowth, ...] = ()

    def __add__(self, other: Growth) -> Growth:
        names = [field.name for field in dataclasses.fields(Growth)]
        return Growth(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def parameter_growth(self) -> float:
        """Adapter parameters against the base's: the paper's figure. 32 bits of a mask count as a parameter."""
        return (self.adapter_parameters + self.adapter_bits / 32) / self.base_parameters

    @property
    def flops_growth(self) -> float:
        """What a task adds to the cost of the base, by the equations."""
        return self.flops_task / self.flops_base - 1

    @property
    def executed_growth(self) -> float:
        """What a task adds to the cost of the base, as it runs."""
        return self.flops_executed / self.flops_base - 1

    @property
    def bytes_growth(self) -> float:
        """A task's file against the file of the shared weights."""
        return self.bytes_task / self.bytes_base


def growth(model: nn.Module, example: Example, task: str | None = None) -> Growth:
    """Counts of an adapted model, which is not touched.

    Args:
        model: A network with adapters.
        example: The shape of one input, or a batch of them.
        task: Which task (default: the active one, else the latest; a model without tasks is measured with one).

    Returns:
        Parameters, FLOPs and bytes of base and task, and the same layer by layer.

    Examples:
        >>> counts = growth(net, (3, 8, 8), "birds")
        >>> counts.base_parameters, counts.adapter_parameters
        (6218, 736)
        >>> f"{counts.parameter_growth:.1%}"
        '11.8%'
    """
    registry = registry_of(model)
    if task is None:
        task = next(iter((*registry.active_names, *reversed(registry.rows))), None)
    else:
        registry.row(task)  # an unknown one is refused before any work

    def measure(network: nn.Module) -> Growth:
        if task is None:
            _add_finished_task(network)
        return _measure(network, example, task or "task")

    return _on_copy(unwrap(model), measure)


def growth_of(network: nn.Module, config: AdapterConfig, example: Example) -> Growth:
    """What `config` would cost on a network that has no adapters yet, and gets none here."""

    def measure(network: nn.Module) -> Growth:
        insert_adapters(network, config)
        _add_finished_task(network)
        return _measure(network, example, "task")

    return _on_copy(network, measure)


def _add_finished_task(network: nn.Module) -> None:
    """A task in the form that is kept once it is learned."""
    add_task(network, "task")
    for transform in own_transforms(network, "task").values():
        transform.begin()
        transform.finish()


def _on_copy(network: nn.Module, measure: Callable[[nn.Module], Growth]) -> Growth:
    try:
        return measure(meta_copy(network))
    except (NotImplementedError, RuntimeError):  # the forward looks at values, which a meta tensor does not have
        return measure(copy.deepcopy(network))


def _measure(network: nn.Module, example: Example, task: str) -> Growth:
    select_task(network, None)
    base = forward_flops(network, example)
    select_task(network, task)
    adapted = forward_flops(network, example)
    row = registry_of(network).row(task)
    counts = dict.fromkeys(PARTS, 0)
    layers = []
    for name, bank in named_banks(network):
        if bank.part == "transforms":
            layers.append(_layer(name, bank, row))
        else:
            counts[bank.part] += _parameters(bank.task(row))
    banks = [bank for _, bank in named_banks(network)]
    of_tasks = {p for bank in banks for p in bank.tasks.parameters()}
    patterns = {p for bank in banks if bank.mode == "replace" for p in bank.layer.parameters()}
    base_parameters = {p: p.numel() for p in network.parameters() if p not in of_tasks}
    return Growth(
        base_parameters=sum(base_parameters.values()),
        shared_parameters=sum(size for p, size in base_parameters.items() if p not in patterns),
        adapter_parameters=sum(layer.parameters for layer in layers),
        adapter_bits=sum(layer.bits for layer in layers),
        norm_parameters=counts["norms"],
        head_parameters=counts["heads"],
        flops_base=base.analytic,
        flops_task=adapted.analytic,
        flops_executed=adapted.executed,
        bytes_base=sum(tensor.nbytes for tensor in shared_state(network).values()),
        bytes_task=sum(tensor.nbytes for tensor in task_state(network, task).values()),
        layers=tuple(layers),
    )


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _layer(name: str, bank: TaskBank, row: Row) -> LayerGrowth:
    transform = bank.transform(row)
    outputs = transform.outputs(bank.layer)
    return LayerGrowth(name, outputs, transform.kept_parameters(), transform.mask_bits(), transform.describe())


def total_growth(growths: Iterable[Growth] | Mapping[str, Growth]) -> Growth:
    """The sum over networks; with a mapping, layers get the network's name before theirs."""
    if isinstance(growths, Mapping):
        growths = [_under(name, each) for name, each in growths.items()]
    return sum(growths, Growth())


def _under(prefix: str, given: Growth) -> Growth:
    layers = (dataclasses.replace(layer, name=f"{prefix}.{layer.name}") for layer in given.layers)
    return dataclasses.replace(given, layers=tuple(layers))


def format_growth(growth: Growth, per_layer: bool = False) -> str:
    """The counts as a table of text lines; with the effective group sizes of every layer, if asked."""
    base = growth.base_parameters
    rows: list[tuple[str, ...]] = [
        ("", "base", "per task", "growth"),
        ("adapter parameters", _n(base), _n(growth.adapter_parameters), _p(growth.adapter_parameters / base)),
        *(
            [("bits of masks", "", _n(growth.adapter_bits), _p(growth.adapter_bits / 32 / base))]
            if growth.adapter_bits
            else []
        ),
        ("normalisation parameters", "", _n(growth.norm_parameters), _p(growth.norm_parameters / base)),
        ("head parameters", "", _n(growth.head_parameters), _p(growth.head_parameters / base)),
        ("FLOPs, ws and wd apart", _n(growth.flops_base), _n(growth.flops_task), _p(growth.flops_growth)),
        ("FLOPs, as executed", "", _n(growth.flops_executed), _p(growth.executed_growth)),
        ("bytes on disk", _n(growth.bytes_base), _n(growth.bytes_task), _p(growth.bytes_growth)),
    ]
    if not per_layer:
        return _table(rows)
    return f"{_table(rows)}\n\n{_table(_layer_rows(growth.layers))}"


def _layer_rows(layers: Sequence[LayerGrowth]) -> list[tuple[str, ...]]:
    """A column for every size that a transform names; without any, it is called by what it says of itself."""
    columns = list(dict.fromkeys(key for each in layers for key in each.sizes)) or ["transform"]
    rows: list[tuple[str, ...]] = [("layer", "outputs", *columns, "parameters")]
    for each in layers:
        cells = [str(each.sizes.get(key, "")) for key in columns]
        if not each.sizes:
            cells[0] = str(list(each.description.values())[-1])
        rows.append((each.name, str(each.outputs), *cells, _n(each.parameters)))
    return rows


def _n(number: int) -> str:
    return f"{number:,}"


def _p(share: float) -> str:
    return f"{share:+.2%}".replace("%", " %")


def _table(rows: list[tuple[str, ...]]) -> str:
    """Columns side by side, the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    )
    return "\n".join("  ".join(line).rstrip() for line in lines)
