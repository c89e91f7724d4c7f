"""All tasks answer for one image."""

import pytest
import torch
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, ConvTransform, Transform, add_task, insert_adapters, using_task
from eftgan.evaluation.maps import channel_correlations
from eftgan.evaluation.task_inference import (
    common_features,
    infer_classes,
    logits_by_task,
    logits_together,
    map_statistics,
    map_textures,
    said_by_task,
    shares_features,
)
from eftgan.models.classifiers import build_classifier

TASKS = ["a", "b", "c"]


def network(parts) -> nn.Module:
    torch.manual_seed(0)
    model = build_classifier("resnet8", 2)
    insert_adapters(model, AdapterConfig(4, 0, heads=("head",), parts=parts))
    share = set() if "transforms" in parts else {"transforms", "norms"}
    for number, name in enumerate(TASKS):
        add_task(model, name, "random", share=share, head_size=2 + number)
    return model.train()


@pytest.mark.parametrize("parts", [("transforms", "norms", "heads"), ("heads",)])
@torch.no_grad()
def test_each_task_answers_as_it_does_alone(parts):
    model, x = network(parts), torch.randn(5, 3, 16, 16)
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    logits = logits_by_task(model, TASKS, lambda: x.split(3))
    together = logits_together(model, TASKS, x)
    assert [each.shape for each in logits] == [(5, 2), (5, 3), (5, 4)]
    assert model.training
    assert all(torch.equal(state[key], tensor) for key, tensor in model.state_dict().items())
    model.eval()
    for task, each, quick in zip(TASKS, logits, together, strict=True):
        with using_task(model, task):
            assert torch.allclose(model(x), each, atol=1e-5)
            assert torch.allclose(each, quick, atol=1e-5)
        (alone,) = logits_by_task(model, [task], lambda: x.split(3))
        assert torch.equal(alone, each)


@torch.no_grad()
def test_tasks_that_cannot_be_merged_answer_as_well(monkeypatch):
    monkeypatch.setattr(ConvTransform, "merged", Transform.merged)
    model, x = network(("transforms", "norms", "heads")), torch.randn(4, 3, 16, 16)
    logits = logits_by_task(model, TASKS, lambda: [x])
    model.eval()
    for task, each in zip(TASKS, logits, strict=True):
        with using_task(model, task):
            assert torch.equal(model(x), each)


def test_tasks_that_differ_in_heads_alone_share_one_forward():
    model, x, calls = network(("heads",)), torch.randn(2, 3, 16, 16), []

    def batches() -> list[Tensor]:
        calls.append(1)
        return [x]

    logits_by_task(model, TASKS, batches)
    assert len(calls) == 1
    assert shares_features(model, TASKS)
    assert not shares_features(network(("transforms", "norms", "heads")), TASKS)


@torch.no_grad()
def test_heads_with_rotation_labels_are_averaged_over_the_turns():
    model, x = network(("transforms", "norms", "heads")), torch.randn(3, 3, 16, 16)
    add_task(model, "turned", "random", head_size=8)
    (said,) = said_by_task(model, ["turned"], lambda: x.split(2), turns=4)
    quick = logits_together(model, ["a", "turned"], x, turns=2)  # of a: one class in two turns
    model.eval()
    with using_task(model, "turned"):
        expected = sum(model(torch.rot90(x, r, (2, 3)))[:, 2 * r : 2 * r + 2] for r in range(4)) / 4
    with using_task(model, "a"):
        two = (model(x)[:, :1] + model(torch.rot90(x, 1, (2, 3)))[:, 1:]) / 2
    assert torch.allclose(said.logits, expected, atol=1e-5)
    assert torch.allclose(quick[0], two, atol=1e-5)
    assert said.features.shape == (3, 64)
    assert torch.allclose(said.features, said_by_task(model, ["turned"], lambda: [x])[0].features, atol=1e-6)


@torch.no_grad()
def test_the_common_space_is_the_first_tasks_maps_of_every_size_and_its_features():
    model, x = network(("transforms", "norms", "heads")), torch.randn(3, 3, 16, 16)
    found = common_features(model, "a", lambda: x.split(2))
    maps = []
    model.eval()
    hooks = [stage.register_forward_hook(lambda m, i, out: maps.append(out.mean((2, 3)))) for stage in model.stages]
    with using_task(model, "a"):
        model(x)
    for hook in hooks:
        hook.remove()
    assert found.shape == (3, 16 + 32 + 64)
    assert torch.allclose(found, torch.cat(maps, 1), atol=1e-5)


@torch.no_grad()
def test_map_statistics_are_means_and_deviations_of_the_image_and_its_mirror_image():
    model, x = network(("transforms", "norms", "heads")), torch.randn(3, 3, 16, 16)
    found = map_statistics(model, "a", lambda: x.split(2))
    both = [common_features(model, "a", lambda view=view: [view]) for view in (x, x.flip(3))]
    assert found.shape == (3, 2 * (16 + 32 + 64))
    assert torch.allclose(found[:, :112], (both[0] + both[1]) / 2, atol=1e-5)
    maps = []
    model.eval()
    hooks = [stage.register_forward_hook(lambda m, i, out: maps.append(out.std((2, 3)))) for stage in model.stages]
    with using_task(model, "a"):
        model(x)
        model(x.flip(3))
    for hook in hooks:
        hook.remove()
    deviations = (torch.cat(maps[:3], 1) + torch.cat(maps[3:], 1)) / 2
    assert torch.allclose(found[:, 112:], deviations, atol=1e-5)


@torch.no_grad()
def test_textures_are_the_statistics_and_how_the_channels_of_the_largest_map_go_together():
    model, x = network(("transforms", "norms", "heads")), torch.randn(3, 3, 16, 16)
    found = map_textures(model, "a", lambda: x.split(2))
    assert torch.equal(found[:, :224], map_statistics(model, "a", lambda: x.split(2)))
    maps = []
    model.eval()
    hook = model.stages[0].register_forward_hook(lambda m, i, out: maps.append(out.flatten(2)))
    with using_task(model, "a"):
        model(x)
        model(x.flip(3))
    hook.remove()
    pairs = [(i, j) for i in range(16) for j in range(i + 1, 16)]
    by_view = [torch.stack([torch.corrcoef(each) for each in view]) for view in maps]
    expected = torch.stack([(by_view[0][:, i, j] + by_view[1][:, i, j]) / 2 for i, j in pairs], 1)
    assert found.shape == (3, 224 + 16 * 15 // 2)
    assert torch.allclose(found[:, 224:], expected, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, 0.7, -300.0])
def test_a_channel_that_is_the_same_everywhere_goes_with_no_other(value):
    ramp = torch.arange(1024.0)
    maps = torch.stack([ramp, -ramp, torch.full_like(ramp, value), torch.full_like(ramp, 0.3)]).view(1, 4, 32, 32)
    assert channel_correlations(maps).tolist() == [[pytest.approx(-1.0), 0.0, 0.0, 0.0, 0.0, 0.0]]


def test_the_class_is_that_of_the_inferred_task():
    logits = [torch.tensor([[9.0, 9.1], [0.0, 4.0]]), torch.tensor([[1.0, -5.0, -5.0], [0.1, 0.0, 0.0]])]
    assert infer_classes(logits, torch.tensor([1, 0])).tolist() == [0, 1]
