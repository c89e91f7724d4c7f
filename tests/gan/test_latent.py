"""Ways from noise to noise and from task to task, on a tiny trained run."""

import pytest
import torch

from eftgan.adapters import BASE, at_strength
from eftgan.config import apply_override, build
from eftgan.errors import UserError
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.kind import train_gan
from eftgan.gan.latent import Subject, between_noises, between_stops, draw_frames, of_task, owned_parts

from ..conftest import TINY


def trained(folder, *words: str):
    data: dict = {"out": str(folder)}
    for word in (*TINY, "training.steps=3", "training.learning_rate=0.01", *words):
        apply_override(data, word)
    return train_gan(build(GanExperiment, data), "test")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "eft")


def test_a_task_at_strength_1_is_what_sample_draws_to_the_bit(run):
    generator = run.generator(1)
    for shares in ({"checks": 1.0}, at_strength({"checks": 1.0}, 1.0), {"checks": 2.0, "discs": 0.0}):
        drawn = draw_frames(run, generator, Subject("checks", (shares,)), 5, 7, truncation=1.5)
        assert drawn.shape == (1, 5, 3, 32, 32)
        assert torch.equal(drawn[0], run.sample("checks", 5, 7, generator, 1.5))


def test_every_strength_of_every_task_ends_at_the_same_base(run):
    generator = run.generator(1)
    base = [
        draw_frames(run, generator, Subject("discs", (at_strength({task: 1.0}, 0.0),)), 3, 0)
        for task in ("discs", "checks")
    ]
    assert torch.equal(*base)
    assert torch.equal(base[0], draw_frames(run, generator, Subject("discs", ({BASE: 1.0},)), 3, 0))


def test_a_way_in_noise_begins_with_the_sample_and_moves_a_little_at_a_time(run):
    generator = run.generator(1)
    frames = draw_frames(run, generator, of_task("checks"), 3, 7, steps=9)
    assert frames.shape == (9, 3, 3, 32, 32)
    assert torch.equal(frames[0], run.sample("checks", 3, 7, generator))
    away = [(frame.float() - frames[0].float()).abs().mean().item() for frame in frames]
    assert 0 < away[1] < away[4] < away[8]


def test_a_way_across_tasks_stops_at_each_task_with_the_same_noise(run):
    generator = run.generator(1)
    way = Subject("discs", ({"discs": 1.0}, {"checks": 1.0}, {BASE: 1.0}))
    frames = draw_frames(run, generator, way, 2, 0, steps=4, show=False)
    assert len(frames) == 7
    for index, shares in ((0, {"discs": 1.0}), (3, {"checks": 1.0}), (6, {BASE: 1.0})):
        assert torch.equal(frames[index], draw_frames(run, generator, Subject("discs", (shares,)), 2, 0)[0])
    middle = {"discs": 2 / 3, "checks": 1 / 3}
    assert torch.equal(frames[1], draw_frames(run, generator, Subject("discs", (middle,)), 2, 0)[0])


def test_noise_keeps_its_size_on_the_way():
    start, end = (torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    way = between_noises(start, end, 11)
    assert torch.equal(way[0], start)
    assert torch.equal(way[-1], end)
    sizes = torch.stack([z.norm(dim=1) for z in way])
    ends = sizes[[0, -1]]
    assert bool((sizes > 0.9 * ends.amin(0)).all())  # a straight line would fall to about 0.7
    assert bool((sizes < 1.1 * ends.amax(0)).all())
    assert all(torch.allclose(z, start, rtol=1e-3, atol=1e-5) for z in between_noises(start, start.clone(), 3))


def test_stops_between_two_ways_come_once():
    mixes = between_stops([{"a": 1.0}, {"b": 1.0}, {BASE: 1.0}], 3)
    assert mixes == [
        {"a": 1.0}, {"a": 0.5, "b": 0.5}, {"a": 0.0, "b": 1.0}, {"b": 0.5, BASE: 0.5}, {"b": 0.0, BASE: 1.0},
    ]  # fmt: skip


def test_tasks_without_anything_of_their_own_are_refused_but_drawn_as_they_are(tmp_path):
    run = trained(tmp_path / "finetune", "method={name: finetune}")
    generator = run.generator(1)
    with pytest.raises(UserError, match="Finetune gives tasks nothing of their own in the generator"):
        draw_frames(run, generator, Subject("discs", (at_strength({"discs": 1.0}, 0.5),)), 2, 0)
    assert torch.equal(draw_frames(run, generator, of_task("discs"), 2, 0)[0], run.sample("discs", 2, 0, generator))


def test_of_methods_that_share_transforms_normalisation_alone_is_mixed(tmp_path):
    run = trained(tmp_path / "mergan", "method={name: mergan}")
    generator = run.generator(1)
    assert owned_parts(run) == ["norms"]
    base, first = (
        draw_frames(run, generator, Subject("discs", (shares,)), 2, 0) for shares in ({BASE: 1.0}, {"discs": 1.0})
    )
    assert torch.equal(base, first)
