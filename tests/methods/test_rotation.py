"""Rotation labels, label smoothing and logit normalisation of EFT, by hand and in training."""

import math

import pytest
import torch

from eftgan.adapters import inference_network
from eftgan.adapters.layers import outputs_of
from eftgan.classifier.export import FromPixels
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.evaluation.accuracy import TIL
from eftgan.evaluation.task_inference import said_by_task
from eftgan.methods import Batch, Eft
from eftgan.methods.heads import head_of
from eftgan.methods.rotation import all_turns, averaged_logits, one_turn_each, turned
from eftgan.scores import read_scores

CORNERS = torch.tensor([[1, 2], [4, 3]]).view(1, 1, 2, 2)  # clockwise from the top left
LABELS = torch.tensor([0, 2])
IMAGES = torch.cat([CORNERS, 10 * CORNERS])


def test_all_turns_show_every_image_four_times_with_a_label_for_each():
    images, labels = all_turns(IMAGES, LABELS, classes=3)
    assert images[::2].flatten(1).tolist() == [[1, 2, 4, 3], [2, 3, 1, 4], [3, 4, 2, 1], [4, 1, 3, 2]]
    assert labels.tolist() == [0, 2, 3, 5, 6, 8, 9, 11]


def test_one_turn_each_is_drawn_for_every_image_and_named_by_its_label():
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(20):
        images, labels = one_turn_each(IMAGES, LABELS, 3, generator)
        for image, original, label, own in zip(images, IMAGES, labels.tolist(), LABELS.tolist(), strict=True):
            turn, rest = divmod(label, 3)
            assert rest == own
            assert torch.equal(image, turned(original[None], turn)[0])
            seen.add(label)
    assert seen == {0, 3, 6, 9, 2, 5, 8, 11}


def test_a_class_is_the_mean_of_its_outputs_in_every_turn():
    outputs = [torch.arange(8.0)[None] + 100 * turn for turn in range(4)]
    # class 0: outputs 0, 2, 4, 6 of the turns 0 to 3
    assert averaged_logits(outputs).tolist() == [[(0 + 102 + 204 + 306) / 4, (1 + 103 + 205 + 307) / 4]]
    assert averaged_logits(outputs[:1]) is outputs[0]


def test_label_smoothing_and_logit_norm_by_hand():
    batch = Batch(torch.zeros(1), torch.tensor([[3.0, 4.0]]), torch.tensor([1]))
    usual = torch.tensor(7.0)
    assert Eft().objective("train", batch, lambda: usual) is usual
    plain = math.log(1 + math.exp(-1.0))  # cross-entropy of (3, 4) and class 1
    smoothed = Eft(label_smoothing=0.2).objective("train", batch, lambda: usual)
    assert float(smoothed) == pytest.approx(0.9 * plain + 0.1 * (plain + 1))
    normed = Eft(logit_norm=0.1).objective("train", batch, lambda: usual)  # (0.6, 0.8) / 0.1
    assert float(normed) == pytest.approx(math.log(1 + math.exp(-2.0)))
    larger = Batch(torch.zeros(1), 5 * batch.outputs, batch.labels)
    assert float(Eft(logit_norm=0.1).objective("train", larger, lambda: usual)) == pytest.approx(float(normed))


@pytest.mark.parametrize("rotations", ["all", pytest.param("one", marks=pytest.mark.slow)])
def test_a_run_with_rotation_labels_trains_answers_by_class_and_counts_its_heads(tiny_classes, rotations):
    method = f"method={{name: eft, rotations: {rotations}, label_smoothing: 0.1, logit_norm: 0.04}}"
    run = train_classifier(tiny_classes("sources.0.take=2", method), "test")
    again = ClassifierRun(run.folder.path)
    model = again.classifier(1)
    assert outputs_of(head_of(model, run.tasks[0])) == 8  # two classes in four turns
    image = again.labelled[0].test.fetch(torch.tensor([0]))[0][0]
    answers, _ = again.answers(image, model, run.tasks)
    assert [len(answer.ranked) for answer in answers] == [2, 2]
    scores = read_scores(run.folder.scores)
    (growth,) = (s.details for s in scores if (s.metric, s.tested_on) == ("growth", run.tasks[1]))
    assert growth["head_parameters"] == 8 * 64 + 8
    assert growth["adapter_parameters"] == _growth_without(tiny_classes)
    assert {s.tested_on for s in scores if s.metric == TIL} == set(run.tasks)
    exported = FromPixels(inference_network(model, run.tasks[0]), again.experiment.pixels, turns=4)
    program = (
        torch.export.export(exported, (image[None].repeat(2, 1, 1, 1),)).module() if rotations == "one" else exported
    )
    (said,) = said_by_task(model, run.tasks[:1], lambda: [again.experiment.pixels(image[None])], turns=4)
    assert torch.allclose(program(image[None].repeat(2, 1, 1, 1))[:1], said.logits, atol=1e-5)


def _growth_without(tiny_classes) -> int:
    from eftgan.classifier.networks import build_network
    from eftgan.evaluation.growth import growth

    return growth(build_network(tiny_classes(), 2), (3, 16, 16)).adapter_parameters
