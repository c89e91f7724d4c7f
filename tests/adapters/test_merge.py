"""What merging folds, and what it must leave."""

import pytest
import torch
from adapter_tools import images, output_of, randomise
from torch import Tensor, nn

from eftgan.adapters import (
    AdapterConfig,
    NotMergeable,
    add_task,
    inference_network,
    insert_adapters,
    merge_task,
    mergeable,
)
from eftgan.errors import UserError
from eftgan.models.gans.stackgan import Generator, StackGan


class Aliased(nn.Module):
    """The BatchNorm is called by its second name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.other_name = self.norm

    def forward(self, x: Tensor) -> Tensor:
        return self.other_name(self.conv(x))


class Branching(nn.Module):
    """The convolution's output has a second user, so the BatchNorm cannot go into it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        return h + self.norm(h)


def adapted(network: nn.Module, **options) -> nn.Module:
    insert_adapters(network, AdapterConfig(**({"a": 4, "b": 4} | options)))
    add_task(network, "one")
    network.double()
    randomise(network)
    return network


def agrees(network: nn.Module, x: Tensor) -> nn.Module:
    merged = merge_task(network, "one")
    assert torch.allclose(merged(x), output_of(network, "one", x), rtol=0, atol=1e-9)
    return merged


def test_a_batchnorm_with_two_names_is_folded_under_both():
    merged = agrees(adapted(Aliased()), images().double())
    assert isinstance(merged.norm, nn.Identity)
    assert merged.other_name is merged.norm


def test_a_batchnorm_whose_input_is_used_elsewhere_stays():
    assert isinstance(agrees(adapted(Branching()), images().double()).norm, nn.BatchNorm2d)


@pytest.mark.parametrize("parts", [("transforms",), ("norms",), ("norms", "heads")])
def test_shared_layers_fold_as_well(parts):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2))
    network = adapted(network, parts=parts, heads=("3",) if "heads" in parts else ())
    merged = agrees(network, images().double())
    assert [type(merged[index]) for index in (1, 4)] == [nn.Identity, nn.Identity]


def test_serial_3x3_is_never_folded_into_a_zero_padded_convolution():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1))
    merged = agrees(adapted(network), images().double())
    assert [layer.kernel_size for layer in merged[0]] == [(3, 3), (3, 3)]


def test_pointwise_and_parallel_cost_nothing_after_merging():
    for options in ({"a": 0, "b": 4}, {"mode": "parallel"}):
        merged = agrees(adapted(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)), **options), images().double())
        assert sum(p.numel() for p in merged.parameters()) == 3 * 4 * 9 + 4


def test_a_generator_merges_with_its_linear_stem_folded():
    network = adapted(Generator(StackGan(stages=2, base_size=32, ngf=4, z_dim=6)))
    merged = merge_task(network, "one")
    z = torch.randn(3, 6).double()
    with torch.no_grad():
        for ours, theirs in zip(network.eval()(z), merged(z), strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)
    assert not any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in merged.modules())


class Standardised(nn.Conv2d):
    """A layer with a forward of its own: its weight is standardised before it is used."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight, self.bias)


@pytest.mark.parametrize("options", [{"a": 0}, {"a": 4}, {"kind": "batche"}])
def test_layers_with_a_forward_of_their_own_keep_it(options):
    network = adapted(nn.Sequential(Standardised(3, 4, 3, padding=1), nn.BatchNorm2d(4)), **options)
    merged = agrees(network, images().double())
    assert any(isinstance(module, Standardised) for module in merged.modules())


def test_a_parallel_branch_beside_a_forward_of_its_own_cannot_be_merged():
    network = adapted(nn.Sequential(Standardised(3, 4, 3, padding=1)), mode="parallel")
    with pytest.raises(NotMergeable, match="has its own forward"):
        merge_task(network, "one")
    assert not mergeable(network, "one")
    x = images().double()
    assert torch.equal(inference_network(network, "one")(x), output_of(network, "one", x))


def test_a_network_for_inference_is_the_merged_one_where_that_can_be():
    network = adapted(Aliased())
    assert mergeable(network, "one")
    assert isinstance(inference_network(network, "one").norm, nn.Identity)
    with pytest.raises(UserError, match="no task 'two'"):
        inference_network(network, "two")


def test_batchnorm_folds_into_a_transposed_convolution_without_groups():
    for groups in (1, 2):
        layer = nn.ConvTranspose2d(4, 4, 3, stride=2, groups=groups, bias=False)
        network = adapted(nn.Sequential(layer, nn.BatchNorm2d(4)), parts=("norms",))
        merged = agrees(network, torch.randn(2, 4, 5, 5).double())
        assert isinstance(merged[1], nn.Identity) == (groups == 1)


def test_weights_that_a_hook_computes_are_refused_by_name():
    network = adapted(nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(3, 4, 3))))
    with pytest.raises(UserError, match="a hook computes its weight"):
        merge_task(network, "one")


def test_merging_needs_a_task_of_the_model():
    with pytest.raises(UserError, match=r"no task 'two'.*one"):
        merge_task(adapted(Aliased()), "two")
