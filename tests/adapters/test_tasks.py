"""The verbs: what a new task starts from, what is shared, what is active, what trains."""

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn, train
from torch import nn

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    insert_adapters,
    load_task,
    registry_of,
    remove_task,
    select_task,
    shared_state,
    task_names,
    task_state,
    train_only,
    using_task,
)
from eftgan.errors import UserError


@pytest.fixture
def network() -> nn.Module:
    """Two tasks with random states; the second is active."""
    torch.manual_seed(0)
    network = small_cnn().eval()
    insert_adapters(network, AdapterConfig(4, 4, heads=("7",)))
    add_task(network, "cats")
    add_task(network, "birds")
    randomise(network)
    return network


def same(state: dict, other: dict, part: str) -> bool:
    keys = {"transforms": "036", "norms": "1", "heads": "7"}[part]
    return all(torch.equal(state[key], other[key]) for key in state if key[0] in keys)


def test_a_task_starts_from_the_previous_one(network):
    add_task(network, "dogs")
    dogs, birds = task_state(network, "dogs"), task_state(network, "birds")
    assert same(dogs, birds, "transforms")
    assert same(dogs, birds, "norms")
    assert not same(dogs, birds, "heads")
    assert registry_of(network).active_names == ("dogs",)


def test_a_task_starts_from_a_named_one(network):
    add_task(network, "dogs", "cats")
    assert same(task_state(network, "dogs"), task_state(network, "cats"), "transforms")
    assert same(task_state(network, "dogs"), task_state(network, "cats"), "norms")


def test_identity_starts_neutral_with_the_first_tasks_normalisation(network):
    add_task(network, "dogs", "identity")
    assert same(task_state(network, "dogs"), task_state(network, "cats"), "norms")
    feature = torch.randn(2, 8, 4, 4)
    assert torch.equal(network[0].tasks["t003"](feature), feature)


def test_random_starts_reset_normalisation_and_draw_transforms(network):
    torch.manual_seed(1)
    add_task(network, "dogs", "random")
    state = task_state(network, "dogs")
    assert torch.equal(state["1.running_mean"], torch.zeros(8))
    assert not torch.equal(state["0.spatial.weight"], task_state(network, "birds")["0.spatial.weight"])
    torch.manual_seed(1)
    add_task(network, "again", "random")
    assert all(torch.equal(state[key], tensor) for key, tensor in task_state(network, "again").items())


def test_the_first_task_keeps_the_networks_own_head():
    network = small_cnn()
    weight = network[7].weight.clone()
    insert_adapters(network, AdapterConfig(heads=("7",)))
    add_task(network, "cats")
    assert torch.equal(task_state(network, "cats")["7.weight"], weight)


def test_heads_have_the_size_that_a_task_asks_for(network):
    add_task(network, "dogs", head_size=9)
    assert output_of(network, "dogs", images()).shape == (4, 9)
    assert output_of(network, "cats", images()).shape == (4, 5)
    load_task(network, "dogs-again", task_state(network, "dogs"))
    assert torch.equal(output_of(network, "dogs-again", images()), output_of(network, "dogs", images()))


def test_a_convolution_can_be_a_head():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 1, 6, bias=False), nn.Flatten())
    insert_adapters(network, AdapterConfig(2, 2, heads=("1",)))
    add_task(network, "cats")
    add_task(network, "birds", head_size=3)
    assert output_of(network, "birds", images()).shape == (4, 3)
    load_task(network, "copy", task_state(network, "birds"))
    assert torch.equal(output_of(network, "copy", images()), output_of(network, "birds", images()))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_can_be_a_head(groups):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 3, groups=groups))
    insert_adapters(network, AdapterConfig(2, 2, heads=("1",)))
    add_task(network, "cats")
    add_task(network, "birds", head_size=6)
    assert output_of(network, "birds", images()).shape == (4, 6, 8, 8)
    load_task(network, "copy", task_state(network, "birds"))
    assert torch.equal(output_of(network, "copy", images()), output_of(network, "birds", images()))
    if groups == 2:
        before = digest(network)
        with pytest.raises(UserError, match="a head of 2 groups cannot have 3 outputs"):
            add_task(network, "dogs", head_size=3)
        assert digest(network) == before


def test_tasks_can_share_parts(network):
    add_task(network, "dogs", share=("transforms", "heads"))
    dogs, birds = task_state(network, "dogs"), task_state(network, "birds")
    assert dogs["0.spatial.weight"].data_ptr() == birds["0.spatial.weight"].data_ptr()
    assert dogs["7.weight"].data_ptr() == birds["7.weight"].data_ptr()
    assert dogs["1.weight"].data_ptr() != birds["1.weight"].data_ptr()
    cats = output_of(network, "cats", images())
    train(network, "dogs", images())
    assert torch.equal(output_of(network, "cats", images()), cats)


def test_removing_a_task_keeps_what_others_share_with_it(network):
    add_task(network, "dogs", share=("transforms",))
    before = output_of(network, "dogs", images())
    remove_task(network, "birds")
    assert task_names(network) == ["cats", "dogs"]
    assert torch.equal(output_of(network, "dogs", images()), before)
    remove_task(network, "dogs")
    assert all(".t001." in key for key in network.state_dict() if ".tasks." in key)


def test_a_removed_active_task_leaves_the_base_network(network):
    base = output_of(network, None, images())
    remove_task(network, "birds")
    assert registry_of(network).active_names == ()
    assert torch.equal(network(images()), base)


def test_a_removed_tasks_modules_never_serve_another(network):
    remove_task(network, "birds")
    add_task(network, "birds", "cats")
    assert list(network[0].tasks) == ["t001", "t003"]


def test_using_a_task_restores_the_selection_also_after_an_exception(network):
    with pytest.raises(ZeroDivisionError), using_task(network, "cats"):
        raise ZeroDivisionError
    with using_task(network, "cats"):
        assert registry_of(network).active_names == ("cats",)
    assert registry_of(network).active_names == ("birds",)
    with using_task(network, None) as same_network:
        assert same_network is network
        assert registry_of(network).active_names == ()
    with using_task(network, "cats"):
        remove_task(network, "birds")
    assert registry_of(network).active_names == ()


def test_a_tuple_of_tasks_serves_equal_chunks_of_one_batch(network):
    x = images(6)
    chunks = output_of(network, ("cats", "birds", "cats"), x)
    apart = [output_of(network, t, part) for t, part in zip(("cats", "birds", "cats"), x.chunk(3), strict=True)]
    assert torch.allclose(chunks, torch.cat(apart), atol=1e-5)
    with pytest.raises(ValueError, match="equal chunks"):
        output_of(network, ("cats", "birds"), images(3))


def test_chunks_train_as_their_tasks_would_alone(network):
    """Statistics of each task see its own chunk only."""
    network.train()
    with using_task(network, ("cats", "birds")):
        network(torch.cat([images(4), images(4, seed=5)]))
    mixed = {name: task_state(network, name)["1.running_mean"].clone() for name in ("cats", "birds")}
    randomise(network)
    with using_task(network, "cats"):
        network(images(4))
    with using_task(network, "birds"):
        network(images(4, seed=5))
    for name, mean in mixed.items():
        assert torch.allclose(mean, task_state(network, name)["1.running_mean"], atol=1e-6)


def test_chunks_work_in_parallel_mode():
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1)).eval()
    insert_adapters(network, AdapterConfig(2, 2, mode="parallel"))
    add_task(network, "a")
    add_task(network, "b")
    randomise(network)
    apart = [output_of(network, name, part) for name, part in zip("ab", images(4).chunk(2), strict=True)]
    assert torch.allclose(output_of(network, ("a", "b"), images(4)), torch.cat(apart), atol=1e-6)


def test_only_the_task_trains_or_the_task_and_the_shared_layers(network):
    def trainable() -> set[str]:
        return {name for name, parameter in network.named_parameters() if parameter.requires_grad}

    own = {name for name, _ in network.named_parameters() if ".t001." in name}
    parameters = train_only(network, "cats")
    assert trainable() == own
    assert len(parameters) == len(own)
    train_only(network, "cats", shared=True)
    layers = {f"{index}.layer.{key}" for index in "036" for key in ("weight", "bias")} - {"0.layer.bias"}
    assert trainable() == own | layers  # patterns of replaced layers take no part


def test_training_all_shared_layers_is_what_the_first_task_does(network):
    before = {key: tensor.clone() for key, tensor in shared_state(network).items()}
    train(network, "cats", images(), shared=True)
    moved = {key for key, tensor in shared_state(network).items() if not torch.equal(tensor, before[key])}
    assert {"0.layer.weight", "3.layer.weight", "6.layer.weight"} <= moved
    assert not any(key.startswith(("1.", "7.")) for key in moved)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: add_task(net, "cats"), "'cats' exists already.*cats, birds"),
        (lambda net: add_task(net, "a/b"), "not usable"),
        (lambda net: add_task(net, ""), "not usable"),
        (lambda net: add_task(net, "x" * 65), "not usable"),
        (lambda net: add_task(net, None), "not usable"),
        (lambda net: add_task(net, "identity"), "names a way to start"),
        (lambda net: add_task(net, "dogs", "wolves"), "'wolves' is neither.*cats, birds"),
        (lambda net: add_task(net, "dogs", share=("legs",)), "share takes"),
        (lambda net: add_task(net, "dogs", share="heads"), "share takes"),
        (lambda net: add_task(net, "dogs", head_size=0), "at least one output"),
        (lambda net: add_task(net, "dogs", head_size=-3), "at least one output"),
        (lambda net: select_task(net, "dogs"), "no task 'dogs'.*cats, birds"),
        (lambda net: select_task(net, ("cats", "dogs")), "no task 'dogs'"),
        (lambda net: select_task(net, ()), "selects nothing"),
        (lambda net: using_task(net, "dogs").__enter__(), "no task 'dogs'"),
        (lambda net: train_only(net, "dogs"), "no task 'dogs'"),
        (lambda net: remove_task(net, "dogs"), "no task 'dogs'"),
        (lambda net: task_state(net, "dogs"), "no task 'dogs'"),
    ],
)
def test_mistakes_are_one_clear_error_and_change_nothing(network, call, message):
    before = digest(network)
    with pytest.raises(UserError, match=message):
        call(network)
    assert digest(network) == before


def test_a_task_that_fails_half_way_leaves_no_trace(network, monkeypatch):
    before = digest(network)

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(network[7], "new_module", fail, raising=False)
    with pytest.raises(MemoryError):
        add_task(network, "dogs")
    with pytest.raises(MemoryError):
        load_task(network, "dogs", task_state(network, "cats"))
    assert digest(network) == before


def test_a_network_without_adapters_is_told_apart():
    with pytest.raises(UserError, match="call insert_adapters"):
        add_task(small_cnn(), "cats")


def test_networks_adapted_one_by_one_are_not_one_model(network):
    other = small_cnn()
    insert_adapters(other, AdapterConfig())
    before = digest(network)
    with pytest.raises(UserError, match="adapted one by one"):
        add_task(nn.ModuleList([network, other]), "dogs")
    assert digest(network) == before


def test_later_keys_sort_after_a_thousand_tasks_too(network):
    registry_of(network).made = 999
    add_task(network, "late")
    assert "t1000" in network[0].tasks
