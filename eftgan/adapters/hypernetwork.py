"""A network that writes the weights of another one (Ha et al. 2017; von Oswald et al. 2020).

It writes a layer chunk by chunk, each from an embedding of the task and one of the chunk. Every shared layer gets a
bank in which a task has no more than its embedding; what writes is shared, and is the network's submodule
`hypernetwork`, so that whatever holds the network's tensors holds it too.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters.bank import TaskBank, named_banks, registry_of
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.layers import Layer, outputs_of, weight_shape
from eftgan.adapters.transforms import Option, Transform

NAME = "hypernetwork"  # as a submodule of the network that it writes


class Hypernetwork(nn.Module):
    """h(e, c_j): a chunk of weights from an embedding of a task and one of the chunk, with one hidden layer.

    A layer of `sizes[i]` weights takes as many whole chunks as it needs. At the start h is 0, whatever it reads. The
    result is divided by the root of the hidden layer's width: a step then moves weights about as far as if they
    trained themselves, so that learning rates need not be others.
    """

    def __init__(self, sizes: Sequence[int], embedding: int, hidden: int, chunk: int) -> None:
        super().__init__()
        self.sizes, self.counts = list(sizes), [-(-size // chunk) for size in sizes]  # weights and chunks, by layer
        self.embedding = embedding
        self.chunks = nn.Parameter(torch.randn(sum(self.counts), embedding))
        self.inner = nn.Linear(2 * embedding, hidden)
        self.outer = nn.Linear(hidden, chunk)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, e: Tensor, layer: int) -> Tensor:
        """All weights of one layer, in a row."""
        chunks = self.chunks.split(self.counts)[layer]
        read = torch.cat([e.expand(len(chunks), -1), chunks], dim=1)
        written = self.outer(torch.tanh(self.inner(read))) / self.outer.in_features**0.5
        return written.flatten()[: self.sizes[layer]]


class Written(Transform):
    """One task at one layer: V = W + h(e, c_j), e and a bias being the task's own. W is the layer's own weight."""

    def __init__(self, hypernetwork: Hypernetwork, layer: int, shape: tuple[int, ...], bias: int) -> None:
        super().__init__()
        self._source = (hypernetwork,)  # in a tuple: it is a submodule of the network, not of every task
        self.layer, self.shape = layer, shape
        self.e = nn.Parameter(torch.zeros(hypernetwork.embedding))
        self.own_bias = nn.Parameter(torch.zeros(bias)) if bias else None

    @torch.no_grad()
    def set_identity(self) -> None:
        """Neutral only while h is 0; later there is no embedding that would be."""
        self.e.zero_()
        if self.own_bias is not None:
            self.own_bias.zero_()

    def reset_parameters(self) -> None:
        """The authors' start: N(0, 1)."""
        self.set_identity()
        nn.init.normal_(self.e)

    def written(self, by: Hypernetwork | None = None) -> Tensor:
        """h of this task's embedding, in a row; `by` an earlier state of the hypernetwork, if given."""
        return (by or self._source[0])(self.e, self.layer)

    def weight(self, weight: Tensor) -> Tensor:
        """W first, so that a weight in channels-last order stays so."""
        return weight + self.written().view(self.shape)

    def bias(self, bias: Tensor | None) -> Tensor | None:
        return bias if bias is None or self.own_bias is None else bias + self.own_bias

    def weight_flops(self) -> int:
        """The sums; what h costs is counted at its own layers."""
        return math.prod(self.shape) + (0 if self.own_bias is None else self.own_bias.numel())

    def describe(self) -> dict[str, Option]:
        return {"kind": "written", "embedding": self.e.numel(), "chunks": self._source[0].counts[self.layer]}


def write_by_hypernetwork(
    network: nn.Module, layers: Sequence[Layer], *, embedding: int, hidden: int, chunk: int | None = None
) -> Hypernetwork:
    """Give an adapted network without tasks a hypernetwork for these layers of it, and a bank to each of them.

    chunk: weights in a chunk; by default as many as make the hypernetwork about as large as what it writes.
    """
    shapes = [weight_shape(layer) for layer in layers]
    sizes = [math.prod(shape) for shape in shapes]
    hypernetwork = Hypernetwork(sizes, embedding, hidden, chunk or max(1, sum(sizes) // (hidden + 1)))
    banks: dict[nn.Module, nn.Module] = {}
    for index, (layer, shape) in enumerate(zip(layers, shapes, strict=True)):
        make = partial(Written, hypernetwork, index, shape, 0 if layer.bias is None else outputs_of(layer))
        banks[layer] = TaskBank(layer, registry_of(network), "transforms", "weight", make)
    replace_modules(network, banks)
    network.add_module(NAME, hypernetwork)
    return hypernetwork


def hypernetwork_of(network: nn.Module) -> Hypernetwork:
    """What writes a network's weights."""
    found = network.get_submodule(NAME)
    assert isinstance(found, Hypernetwork)
    return found


def written_weights(network: nn.Module, task: str, by: Hypernetwork | None = None) -> Tensor:
    """h of a task for all layers, in a row; `by` an earlier state of the hypernetwork, if given."""
    tasks = [bank.task(bank.registry.row(task)) for _, bank in named_banks(network)]
    return torch.cat([each.written(by) for each in tasks if isinstance(each, Written)])
