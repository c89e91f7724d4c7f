"""All tasks answer for one image, and the most certain is believed."""

import math

import pytest
import torch
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, ConvTransform, Transform, add_task, insert_adapters, using_task
from eftgan.evaluation.task_inference import (
    certainties,
    entropy,
    infer_classes,
    infer_tasks,
    logits_by_task,
    logits_together,
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


def test_entropy_by_hand():
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [50.0, -50.0]])
    expected = [math.log(2), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), 0.0]
    assert torch.allclose(entropy(logits), torch.tensor(expected), atol=1e-6)


def test_least_entropy_or_largest_logit_names_the_task():
    unsure_but_large = torch.tensor([[9.0, 9.0], [0.0, 4.0]])
    sure_but_small = torch.tensor([[1.0, -5.0, -5.0], [0.1, 0.0, 0.0]])
    logits = [unsure_but_large, sure_but_small]
    assert infer_tasks(logits, joined=False).tolist() == [1, 0]
    assert infer_tasks(logits, joined=True).tolist() == [0, 0]
    assert infer_classes(logits, torch.tensor([1, 0])).tolist() == [0, 1]


@pytest.mark.parametrize("joined", [False, True])
def test_the_surest_task_is_the_one_that_is_inferred(joined):
    generator = torch.Generator().manual_seed(0)
    logits = [3 * torch.randn(50, classes, generator=generator) for classes in (2, 3, 4)]
    sure = certainties(logits, joined)
    assert torch.equal(sure.argmax(0), infer_tasks(logits, joined))
    assert bool(((sure > 0) & (sure <= 1)).all())


def test_a_task_that_knows_nothing_is_as_sure_as_one_class_of_all_it_has():
    even, certain = torch.zeros(1, 4), torch.tensor([[50.0, 0.0]])
    assert certainties([even, certain], joined=False).flatten().tolist() == pytest.approx([0.25, 1.0])
    assert certainties([even, even], joined=True).flatten().tolist() == pytest.approx([1 / 8, 1 / 8])
