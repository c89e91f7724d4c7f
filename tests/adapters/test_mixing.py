"""Between tasks: strength, mixes, and what has nothing in between."""

import itertools

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn

from eftgan.adapters import (
    BASE,
    TRANSFORMS,
    AdapterConfig,
    add_task,
    at_strength,
    inference_network,
    insert_adapters,
    mixed_network,
    mixed_state,
    own_transforms,
    task_state,
)
from eftgan.errors import UserError

NUMBERS = [kind for kind in TRANSFORMS if kind != "mask"]
each_kind = pytest.mark.parametrize("kind", NUMBERS)


def adapted(kind: str = "eft", heads: tuple[str, ...] = ()):
    torch.manual_seed(0)
    network = small_cnn()
    insert_adapters(network, AdapterConfig(2, 2, kind=kind, heads=heads))
    for task in ("cats", "birds"):
        add_task(network, task, "identity")
    randomise(network)
    return network.eval()


@torch.no_grad()
def draws(network) -> torch.Tensor:
    return network(images())


@each_kind
def test_strength_1_and_a_mix_of_one_task_are_the_task_to_the_bit(kind):
    network = adapted(kind)
    wanted = draws(inference_network(network, "birds"))
    for shares in (at_strength({"birds": 1.0}, 1.0), {"birds": 1.0}, {"birds": 3.0}, {"cats": 0.0, "birds": 0.2}):
        assert torch.equal(draws(mixed_network(network, shares)), wanted)


@each_kind
def test_strength_0_is_the_base_to_the_bit_neutral_transforms_with_the_norms_of_the_first_task(kind):
    network = adapted(kind)
    base = draws(mixed_network(network, at_strength({"birds": 1.0}, 0.0)))
    add_task(network, "new", "identity")  # which starts there
    assert torch.equal(base, draws(inference_network(network.eval(), "new")))
    assert not torch.equal(base, draws(inference_network(network, "birds")))


def test_a_mix_is_the_weighted_mean_of_every_tensor():
    network = adapted()
    cats, birds = (task_state(network, task) for task in ("cats", "birds"))
    mixed = mixed_state(network, {"cats": 1.0, "birds": 3.0})
    assert mixed.keys() == cats.keys()
    for key in cats:
        assert torch.allclose(mixed[key].float(), (0.25 * cats[key] + 0.75 * birds[key]).float(), atol=1e-6), key
    scale = mixed_state(network, {"birds": 0.3, BASE: 0.7})["6.scale"]  # a linear layer's e, neutral at 1
    assert torch.allclose(scale, 0.3 * birds["6.scale"] + 0.7)


def test_what_two_tasks_have_in_common_stays_as_it_is_to_the_bit():
    network = adapted()
    add_task(network, "twin", "birds")
    mixed, birds = mixed_state(network, {"birds": 0.3, "twin": 0.7}), task_state(network, "birds")
    assert all(torch.equal(mixed[key], birds[key]) for key in birds)


def test_the_way_from_the_base_to_a_task_has_no_jump():
    network = adapted()
    outputs = [draws(mixed_network(network, at_strength({"birds": 1.0}, s / 20))) for s in range(21)]
    steps = [float((after - before).abs().max()) for before, after in itertools.pairwise(outputs)]
    assert max(steps) < 0.3 * float((outputs[-1] - outputs[0]).abs().max())


def test_beyond_a_task_variances_stay_above_zero():
    network = adapted()
    mixed = mixed_state(network, at_strength({"birds": 1.0}, 50.0))
    assert all(bool((tensor > 0).all()) for key, tensor in mixed.items() if key.endswith("running_var"))
    assert bool(draws(mixed_network(network, at_strength({"birds": 1.0}, 50.0))).isfinite().all())


def test_transforms_that_all_tasks_share_belong_to_the_base():
    network = adapted()
    parts = ("norms",)
    base = mixed_state(network, {BASE: 1.0}, parts)
    cats = task_state(network, "cats")
    assert all(torch.equal(base[key], cats[key]) for key in cats)


def test_mixing_leaves_the_model_as_it_was():
    network = adapted()
    before, output = digest(network), output_of(network, "birds", images())
    mixed_network(network, {"cats": 0.5, "birds": 0.5})
    assert digest(network) == before
    assert torch.equal(output_of(network, "birds", images()), output)


def test_heads_are_mixed_where_their_sizes_agree():
    network = adapted(heads=("7",))
    mixed = mixed_state(network, {"cats": 0.5, "birds": 0.5})
    heads = [task_state(network, task)["7.weight"] for task in ("cats", "birds")]
    assert torch.allclose(mixed["7.weight"], sum(heads) / 2)
    add_task(network, "many", head_size=9)
    with pytest.raises(UserError, match=r"heads of other sizes cannot be mixed: '7.weight'"):
        mixed_network(network, {"cats": 0.5, "many": 0.5})


def test_masks_have_no_strength_and_no_mix_but_a_task_alone_is_drawn():
    network = adapted("mask")
    for transform in own_transforms(network, "birds").values():
        transform.reset_parameters()
        transform.finish()
    for shares in ({"cats": 0.5, "birds": 0.5}, {BASE: 1.0}, at_strength({"cats": 1.0}, 0.5)):
        with pytest.raises(UserError, match="task 'birds' keeps masks, and nothing lies between two masks"):
            mixed_network(network, shares)
    assert torch.equal(draws(mixed_network(network, {"birds": 1.0})), draws(inference_network(network, "birds")))


@pytest.mark.parametrize(
    "shares", [{"cats": -1.0}, {"cats": 0.0}, {"cats": 0.5, "birds": -0.5}, {"cats": float("nan")}]
)
def test_shares_without_a_positive_sum_are_refused(shares):
    with pytest.raises(UserError, match="a sum above 0"):
        mixed_network(adapted(), shares)


def test_an_unknown_task_is_refused():
    with pytest.raises(UserError, match="no task 'dogs' in this model; it has: cats, birds"):
        mixed_network(adapted(), {"cats": 0.5, "dogs": 0.5})
