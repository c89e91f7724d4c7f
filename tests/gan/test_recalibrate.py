"""BatchNorm statistics that fit the averaged weights."""

import pytest
import torch
from torch import nn

from eftgan.adapters import (
    AdapterConfig,
    add_task,
    insert_adapters,
    select_task,
    shared_state,
    task_modules,
    task_state,
)
from eftgan.data.streams import stream
from eftgan.gan.kind import train_gan
from eftgan.gan.recalibrate import recalibrate

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture
def network() -> nn.Module:
    """A convolution and a normalisation, with two tasks."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4))
    insert_adapters(made, AdapterConfig(a=2, b=0))
    for task in ("one", "two"):
        add_task(made, task)
    return made


def test_statistics_are_the_mean_of_the_batches_own(network):
    batches = torch.randn(3, 5, 2, 6, 6)
    select_task(network, "one")
    network.train()
    recalibrate(network, "two", batches)
    maps = [network[0](batch).transpose(0, 1).flatten(1) for batch in batches]  # both tasks' transforms are identities
    [norm] = task_modules(network, "two", "norms")
    assert torch.allclose(norm.running_mean, torch.stack([m.mean(1) for m in maps]).mean(0), atol=1e-6)
    assert torch.allclose(norm.running_var, torch.stack([m.var(1) for m in maps]).mean(0), atol=1e-6)
    assert norm.momentum == 0.1
    assert norm.training


def test_nothing_but_the_tasks_statistics_changes(network):
    before = {**shared_state(network), **task_state(network, "one")}
    before = {name: tensor.clone() for name, tensor in before.items()}
    weight = task_modules(network, "two", "norms")[0].weight.clone()
    recalibrate(network, "two", torch.randn(3, 5, 2, 6, 6))
    after = {**shared_state(network), **task_state(network, "one")}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert torch.equal(task_modules(network, "two", "norms")[0].weight, weight)


@pytest.mark.parametrize("method", ["eft", pytest.param("finetune", marks=pytest.mark.slow)])
def test_training_ends_with_statistics_of_the_weights_it_keeps(tiny, method):
    live, fitted = (
        train_gan(tiny(f"method={{name: {method}}}", f"training.recalibration={count}", out=f"{count}"), "test")
        for count in (0, 7)
    )
    for after, task in enumerate(fitted.trained):
        states = [task_state(run.generator(after), task) for run in (live, fitted)]
        changed = {name for name, tensor in states[0].items() if not torch.equal(tensor, states[1][name])}
        assert changed
        assert all(name.endswith(STATISTICS) for name in changed)
        generator, options = fitted.generator(after), fitted.experiment.training
        kept = statistics(generator, task)
        noise = stream(fitted.experiment.seed, task, "recalibration")
        recalibrate(generator, task, torch.randn(7, options.batch, fitted.experiment.network.z_dim, generator=noise))
        assert torch.equal(statistics(generator, task), kept)


def statistics(network: nn.Module, task: str) -> torch.Tensor:
    norms = task_modules(network, task, "norms")
    return torch.cat([norm.running_mean for norm in norms] + [norm.running_var for norm in norms])
