"""Piggyback: later tasks choose among the weights of the first."""

import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from eftgan.adapters import own_transforms, shared_state, task_state
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.methods.piggyback import Piggyback
from eftgan.names import CLASSIFIER
from eftgan.scores import read_scores
from eftgan.tensors import read_tensors

WEIGHTS = 3 * 16 * 9 + 16 * 32 * 9 + 512 * 32  # of the network of these tests, its head apart


def test_the_first_task_has_no_mask_and_later_ones_keep_a_bit_a_weight(learn):
    learned = learn(Piggyback(score_rate=5), epochs=1)
    sizes = []
    for index, task in enumerate(("shapes-1", "shapes-2", "shapes-3")):
        tensors, _ = read_tensors(learned.trainer.folder.task_file(index, task))
        masks = {key: tensor for key, tensor in tensors.items() if key.endswith(".bits")}
        assert not any(key.endswith(".scores") for key in tensors)
        sizes.append(sum(tensor.nbytes for tensor in masks.values()))
        rest = sum(tensor.nbytes for key, tensor in tensors.items() if key not in masks)
        assert rest == 4 * (4 * (16 + 32)) + 2 * 8 + 4 * 33 * 4  # normalisation, its counters, the head
    assert sizes == [0, WEIGHTS // 8, WEIGHTS // 8]
    closed = [1 - mask.mask().float().mean() for mask in own_transforms(learned.network, "shapes-2").values()]
    assert all(0 < share < 0.9 for share in closed)


def test_later_tasks_train_scores_without_decay_beside_norms_and_head(learn, three_tasks):
    learned = learn(Piggyback(score_rate=3), three_tasks[:1], epochs=0.1)
    method, networks = learned.method, {CLASSIFIER: learned.network}
    method.grow(networks, "new", head_size=4)
    parameters = method.trainable(networks, "new")[CLASSIFIER]
    others, scores = method.groups(CLASSIFIER, parameters)
    assert sum(p.numel() for p in scores.parameters) == WEIGHTS
    assert (scores.rate, scores.decay) == (3, 0.0)
    assert sum(p.numel() for p in others.parameters) == 2 * (16 + 32) + 33 * 4
    (first,) = method.groups(CLASSIFIER, method.trainable(networks, "shapes-1")[CLASSIFIER])
    assert sum(p.numel() for p in first.parameters) > WEIGHTS


def test_a_later_task_starts_with_all_weights_or_with_the_mask_before_it(learn, three_tasks):
    for start in ("ones", "previous"):
        learned = learn(Piggyback(start=start, score_rate=5), three_tasks[:2], epochs=0.5, out=start)
        last = {name: mask.mask() for name, mask in own_transforms(learned.network, "shapes-2").items()}
        assert not all(bool(mask.all()) for mask in last.values())
        learned.method.grow({CLASSIFIER: learned.network}, "new", head_size=4)
        for name, mask in own_transforms(learned.network, "new").items():
            assert torch.equal(mask.mask(), last[name]) == (start == "previous" or bool(last[name].all()))
            assert mask.mask().all() == (start == "ones" or bool(last[name].all()))


def test_norms_of_the_first_task_serve_all_and_no_longer_move(learn, three_tasks):
    first = learn(Piggyback(norms="first"), three_tasks[:1], epochs=0.5, out="first")
    learned = learn(Piggyback(norms="first"), epochs=0.5, out="all")
    before, after = shared_state(first.network), shared_state(learned.network)
    statistics = [key for key in before if "running" in key]
    assert len(statistics) == 4
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert not any("running" in key for key in task_state(learned.network, "shapes-3"))
    assert not any(module.training for module in learned.network.modules() if isinstance(module, _BatchNorm))
    assert torch.equal(learned.logits[0]["shapes-1"], learned.logits[2]["shapes-1"])


def test_later_tasks_learn_more_than_a_head(learn):
    learned = learn(Piggyback(), epochs=4)
    assert min(learned.matrix[1, 1], learned.matrix[2, 2]) > 0.4


def test_a_gan_keeps_masks_of_its_generator(tiny):
    run = train_gan(tiny("method={name: piggyback, score_rate: 50}", "training.recalibration=2"), "test")
    tensors, _ = read_tensors(run.folder.task_file(1, "checks"))
    assert {key.split("/")[0] for key in tensors} == {"generator"}
    assert any(key.endswith(".bits") for key in tensors)
    assert any("running" in key for key in tensors)
    early, late = (run.sample("discs", 5, seed=1, generator=run.generator(after)) for after in (0, 1))
    assert torch.equal(early, late)
    assert not torch.equal(run.sample("checks", 5, seed=1, generator=run.generator(1)), late)
    growth = [score for score in read_scores(run.folder.scores) if score.metric == "growth"]
    assert growth[0].value == 0
    assert 0 < growth[1].value < 1 / 32
    assert growth[1].details["adapter_bits"] > 0


def test_its_first_task_is_not_that_of_others(tiny, tmp_path):
    one = "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"
    train_gan(tiny("method={name: finetune}", one, out="plain"), "test")
    with pytest.raises(UserError, match="adapters=mask"):
        train_gan(tiny("method={name: piggyback}", f"start={tmp_path / 'plain'}"), "test")
