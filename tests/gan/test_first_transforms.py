"""`first_transforms: neutral`: one first task for adapters of every kind and size."""

import pytest
import torch

from eftgan.adapters import own_transforms, task_modules, using_task
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.tensors import read_tensors

ONE = "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"
NEUTRAL = "method={name: eft, first_transforms: neutral}"
PLAIN = "training.fast_upsampling=false"  # which a branch beside a layer cannot have, and rounds otherwise


@pytest.fixture
def first(tiny) -> GanRun:
    return train_gan(tiny(ONE, NEUTRAL, PLAIN, out="first"), "test")


def drawn(run: GanRun, after: int) -> torch.Tensor:
    generator, z = run.generator(after), torch.randn(3, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad(), using_task(generator, "discs"):
        return generator(z)[-1]


def test_the_first_tasks_transforms_stay_neutral_while_the_rest_trains(first):
    generator = first.generator(0)
    for name, transform in own_transforms(generator, "discs").items():
        fresh = generator.get_submodule(name).new_module()
        for key, tensor in transform.state_dict().items():
            assert torch.equal(tensor, fresh.state_dict()[key])
    norms = task_modules(generator, "discs", "norms")
    assert len(norms) > 2
    assert all((norm.weight != 1).any() for norm in norms)


@pytest.mark.parametrize(
    ("adapters", "discriminator"),
    [
        ("{kind: adafm}", "eft"),
        ("{kind: lora, options: {rank: 2}}", "full"),
        ("{kind: residual, a: 2, b: 0}", "eft"),
        ("{a: 3, b: 1, exclude: ['upsample.0*']}", "restart"),
    ],
)
def test_it_serves_every_kind_and_draws_the_same_to_the_bit(first, tiny, adapters, discriminator):
    words = [f"adapters={adapters}", NEUTRAL, f"method.discriminator={discriminator}", PLAIN, "training.steps=3"]
    run = train_gan(tiny(*words, f"start={first.folder.path}", out="run"), "test")
    assert run.trained == ["discs", "checks"]
    assert torch.equal(drawn(run, 0), drawn(first, 0))
    assert torch.equal(drawn(run, 1), drawn(first, 0))


@pytest.mark.parametrize(("before", "after"), [("eft", "full"), pytest.param("full", "eft", marks=pytest.mark.slow)])
def test_it_serves_networks_under_spectral_norm(tiny, before, after):
    """Whose tensors lie deeper in their layers than a weight does; whole discriminators have no transforms."""
    network = "network={name: fastgan, size: 32, ngf: 2, ndf: 2, z_dim: 8}"
    words = [network, NEUTRAL, "training.steps=2"]
    first = train_gan(tiny(*words, ONE, f"method.discriminator={before}", out="first"), "test")
    other = ["adapters={a: 1, b: 1}", f"method.discriminator={after}", f"start={first.folder.path}"]
    run = train_gan(tiny(*words, *other, out="run"), "test")
    assert run.trained == ["discs", "checks"]
    assert torch.equal(drawn(run, 1), drawn(first, 0))
    states = [read_tensors(each.folder.state_files()[0])[0] for each in (first, run)]
    kept = [
        {key.replace(".layer.", "."): tensor for key, tensor in state.items() if "discriminator32/read.0" in key}
        for state in states
    ]
    shared = [key for key in kept[0] if "network/" in key and "tasks" not in key]
    assert [key.rpartition(".")[2] for key in shared].count("original") == 1
    assert all(torch.equal(kept[0][key], kept[1][key]) for key in shared)


def test_a_first_task_whose_transforms_were_trained_is_refused_and_the_other_way_round(first, tiny):
    with pytest.raises(UserError, match="trained with first_transforms=neutral, not with the usual settings"):
        train_gan(tiny(f"start={first.folder.path}", out="run"), "test")
    trained = train_gan(tiny(ONE, "training.steps=1", out="trained"), "test")
    with pytest.raises(UserError, match="trained with the usual settings, not with first_transforms=neutral"):
        train_gan(tiny(NEUTRAL, f"start={trained.folder.path}", out="run"), "test")


def test_a_random_start_is_not_neutral(tiny):
    with pytest.raises(UserError, match="first_init: random"):
        tiny("method={name: eft, first_transforms: neutral, first_init: random}")
