"""Which gates stand before and behind a layer, and which entries of a weight join open units."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters
from eftgan.adapters.wiring import GatedLayer, gated_layers
from eftgan.errors import UserError
from eftgan.models.classifiers import build_classifier


def wiring(network: nn.Module, heads=("head",)) -> dict[str, tuple[str, list[str] | None]]:
    insert_adapters(network, AdapterConfig(parts=("norms", "heads"), heads=heads, gate="unit"))
    add_task(network, "one")
    return {
        each.name: (each.gate, None if each.inputs is None else sorted(each.inputs)) for each in gated_layers(network)
    }


def test_a_sum_of_branches_reads_the_gates_of_both():
    found = wiring(build_classifier("resnet8", 3))
    assert found["stem.0"] == ("stem.1", None)  # it reads the image
    assert found["stages.0.0.residual.0"] == ("stages.0.0.residual.1", ["stem.1"])
    assert found["stages.0.0.residual.3"] == ("stages.0.0.residual.4", ["stages.0.0.residual.1"])
    both = ["stages.0.0.residual.4", "stem.1"]
    assert found["stages.1.0.residual.0"] == ("stages.1.0.residual.1", both)
    assert found["stages.1.0.shortcut.0"] == ("stages.1.0.shortcut.1", both)


def test_layers_without_a_norm_are_gated_themselves_and_unknown_operations_hide_their_inputs():
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.Sigmoid(), nn.Linear(5, 6),
        nn.LayerNorm(6), nn.Linear(6, 2),
    )  # fmt: skip
    assert wiring(network, heads=("8",)) == {
        "0.layer": ("0", None),
        "4.layer": ("4", ["0"]),
        "6.layer": ("6", None),  # a sigmoid makes zeros a half
    }


def test_a_network_without_a_graph_is_refused():
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x) if x.sum() > 0 else x)

    with pytest.raises(UserError, match=r"Branches cannot be followed by torch\.fx"):
        wiring(Branches())


def bools(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.bool)


def entries(layer: nn.Module, outputs: torch.Tensor, inputs: torch.Tensor | None) -> list:
    mask = GatedLayer("x", layer, "y", frozenset()).entries(outputs, inputs)
    assert mask.shape == layer.weight.shape
    return mask.flatten(2).any(2).int().tolist() if mask.dim() > 2 else mask.int().tolist()


def test_entries_join_open_inputs_and_outputs():
    assert entries(nn.Linear(2, 2), bools(1, 0), bools(1, 0)) == [[1, 0], [0, 0]]
    assert entries(nn.Linear(2, 2), bools(1, 0), None) == [[1, 1], [0, 0]]
    assert entries(nn.Linear(4, 2), bools(1, 1), bools(0, 1)) == [[0, 0, 1, 1], [0, 0, 1, 1]]  # two pixels a channel
    assert entries(nn.Conv2d(4, 2, 3, groups=2), bools(1, 1), bools(1, 0, 0, 1)) == [[1, 0], [0, 1]]
    assert entries(nn.ConvTranspose2d(2, 3, 3), bools(1, 0, 1), bools(0, 1)) == [[0, 0, 0], [1, 0, 1]]
