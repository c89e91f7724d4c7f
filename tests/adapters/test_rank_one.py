"""BatchEnsemble: the product by hand, its start, its size, and what it leaves alone."""

import copy
import io

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn
from torch import nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters, select_task, task_names, task_state
from eftgan.adapters.transforms import RankOne
from eftgan.errors import UserError
from eftgan.evaluation.growth import format_growth, growth_of
from eftgan.models.classifiers import CLASSIFIERS


def adapted(**options) -> nn.Module:
    torch.manual_seed(0)
    network = small_cnn().eval()
    insert_adapters(network, AdapterConfig(kind="batche", heads=("7",), **options))
    return network


def test_the_product_is_that_of_the_hand_computed_case():
    network = nn.Sequential(nn.Linear(2, 2, bias=False))
    insert_adapters(network, AdapterConfig(kind="batche"))
    add_task(network, "one")
    transform = network[0].tasks["t001"]
    with torch.no_grad():
        network[0].layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        transform.r.copy_(torch.tensor([1.0, -1.0]))
        transform.s.copy_(torch.tensor([2.0, 1.0]))
        assert transform.weight(network[0].layer.weight).tolist() == [[2, -4], [3, -4]]
        assert network(torch.ones(1, 2)).tolist() == [[-2, -1]]
        transform.own_bias.copy_(torch.tensor([10.0, 20.0]))
        assert network(torch.ones(1, 2)).tolist() == [[8, 19]]


@pytest.mark.parametrize("layer", [nn.Conv2d(6, 4, 3), nn.ConvTranspose2d(6, 4, 3), nn.Linear(6, 4)])
def test_scaling_the_weight_scales_inputs_and_outputs(layer):
    torch.manual_seed(0)
    network = nn.Sequential(copy.deepcopy(layer)).double()
    network[0].bias = None
    insert_adapters(network, AdapterConfig(kind="batche", bias=False))
    add_task(network, "one", "random")
    transform = network[0].tasks["t001"]
    x = torch.randn(2, 6, 5, 5, dtype=torch.float64) if layer.weight.dim() == 4 else torch.randn(2, 6).double()
    r, s = (v.view(1, -1, *[1] * (x.dim() - 2)) for v in (transform.r, transform.s))
    assert set(torch.cat([transform.r, transform.s]).tolist()) == {-1.0, 1.0}
    assert torch.allclose(network(x), network[0].layer(x * r) * s)


def test_groups_of_a_transposed_convolution_scale_their_own_outputs():
    layer = nn.ConvTranspose2d(4, 6, 1, groups=2, bias=False)
    transform = RankOne(tuple(layer.weight.shape), groups=2, transposed=True)
    with torch.no_grad():
        transform.r.copy_(torch.tensor([1.0, 10.0]))
        transform.s.copy_(torch.arange(1.0, 7.0))
    scale = transform.weight(torch.ones(4, 3, 1, 1))[:, :, 0, 0]
    assert scale.tolist() == [[1, 2, 3], [10, 20, 30], [4, 5, 6], [40, 50, 60]]


def test_a_random_start_draws_signs_or_leaves_ones():
    for start, values in (("signs", {-1.0, 1.0}), ("ones", {1.0})):
        network = adapted(options={"start": start})
        add_task(network, "one", "random")
        state = task_state(network, "one")
        for index in (0, 3, 6):
            assert set(torch.cat([state[f"{index}.r"], state[f"{index}.s"]]).tolist()) == values
            assert not state[f"{index}.own_bias"].any()


def test_scales_are_a_quarter_of_a_percent_of_the_small_resnet():
    with torch.device("meta"):
        network = CLASSIFIERS["resnet18_third"](5)
    counted, without_bias = (
        growth_of(network, AdapterConfig(kind="batche", heads=("head",), bias=bias), (3, 32, 32))
        for bias in (True, False)
    )
    biases = sum(layer.outputs for layer in counted.layers)
    assert 100 * without_bias.parameter_growth == pytest.approx(0.25, abs=0.005)
    assert counted.adapter_parameters == without_bias.adapter_parameters + biases
    table = [line.split() for line in format_growth(counted, per_layer=True).splitlines()]
    assert ["layer", "outputs", "r", "s", "parameters"] in table
    assert ["stem.0", "20", "3", "20", "43"] in table


def test_a_task_costs_what_its_weights_cost_once_per_forward():
    counted = growth_of(nn.Sequential(nn.Conv2d(3, 16, 3)), AdapterConfig(kind="batche"), (3, 10, 10))
    assert counted.flops_base == 16 * 64 * (2 * 27 + 1)
    assert counted.flops_task - counted.flops_base == 16 * 3 + 16 * 27 + 16
    assert counted.flops_executed == counted.flops_task


def test_a_linear_layer_before_batchnorm_has_scales_too():
    network = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    assert insert_adapters(network, AdapterConfig(kind="batche")).transforms == ["0"]


def test_copies_and_pickles_go_on_working():
    network, buffer = adapted(), io.BytesIO()
    add_task(network, "cats")
    torch.save(network, buffer)
    buffer.seek(0)
    for twin in (copy.deepcopy(network), torch.load(buffer, weights_only=False)):
        assert digest(twin) == digest(network)
        add_task(twin, "birds")
        assert task_names(network) == ["cats"]


def test_layers_whose_weight_is_computed_stay_shared_and_are_listed():
    network = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
        nn.utils.spectral_norm(nn.Linear(4, 4)),
        nn.Linear(4, 4),
    )
    state = {key: tensor.clone() for key, tensor in network[:2].state_dict().items()}
    insertion = insert_adapters(network, AdapterConfig(kind="batche"))
    assert all(torch.equal(tensor, state[key]) for key, tensor in network[:2].state_dict().items())
    assert insertion.transforms == ["2"]
    assert all("its weight is computed" in insertion.shared[name] for name in "01")


def test_hooks_on_the_layer_go_on_firing():
    network, shapes = small_cnn().eval(), []
    network[0].register_forward_hook(lambda layer, given, out: shapes.append(tuple(out.shape)))
    insert_adapters(network, AdapterConfig(kind="batche"))
    add_task(network, "one")
    network(images())
    assert shapes == [(4, 8, 8, 8)]


def test_a_compiled_network_follows_the_task():
    network = adapted()
    add_task(network, "cats")
    add_task(network, "birds")
    randomise(network)
    before = digest(network)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for task in ("cats", "birds", None):
        select_task(compiled, task)
        with torch.no_grad():
            assert torch.allclose(compiled(images()), output_of(network, task, images()), atol=1e-6)
    select_task(compiled, "birds")
    assert digest(network) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "bache"}, "no adapters of kind 'bache'; did you mean 'batche'"),
        ({"kind": "something"}, "there are: eft, batche"),
        ({"kind": "batche", "options": {"begin": "ones"}}, "no option 'begin'; it knows: start"),
        ({"kind": "batche", "options": {"start": "twos"}}, "start must be signs or ones, got 'twos'"),
        ({"kind": "batche", "mode": "parallel"}, "mode is a setting of kind eft; batche has none"),
        ({"kind": "batche", "sizes": {"0": (4, 4)}}, "sizes is a setting of kind eft"),
        ({"options": {"rank": 4}}, "kind eft has no option 'rank'; it knows: none"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        AdapterConfig(**settings)
