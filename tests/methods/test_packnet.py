"""PackNet: weights shared out between tasks, in hand-computed cases, across stops, and in files."""

import json

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, Together, fingerprint, select_task, task_names
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.errors import UserError
from eftgan.evaluation.growth import growth
from eftgan.gan.kind import train_gan
from eftgan.methods import Moment
from eftgan.methods.packnet import PackNet, smallest
from eftgan.names import CLASSIFIER
from eftgan.scores import read_scores
from eftgan.tensors import read_tensors, tensors_digest
from eftgan.training.checkpoint import read_shared, read_task
from eftgan.training.held import Held

from .conftest import PIXELS, Tiny
from .test_hooks import digests, in_two_parts

PACKNET = "method={name: packnet, prune: 0.5, retrain: 0.4}"
ROUGH = {"momentum": 0.9, "decay": 0.01}  # what would move held weights without a gradient


def test_two_tasks_by_hand(two_layers):
    method, networks = PackNet(prune=0.5, retrain=0.25), {CLASSIFIER: two_layers()}
    network = networks[CLASSIFIER]
    method.prepare(networks, {CLASSIFIER: AdapterConfig(heads=("head",))})
    method.grow(networks, "first", head_size=2)
    weight, x = network.body.layer.weight, torch.ones(1, 2)
    with torch.no_grad():
        weight.copy_(torch.tensor([[0.5, -0.1], [0.2, -0.4]]))
    method.begin_step(CLASSIFIER, networks, Moment(74, 0.74))
    assert method.owned(network, "first")["body.layer.weight"].all()
    method.begin_step(CLASSIFIER, networks, Moment(75, 0.75))
    assert method.owned(network, "first")["body.layer.weight"].tolist() == [[True, False], [False, True]]
    method.end_task(networks, "first", None)
    assert torch.equal(weight, torch.tensor([[0.5, 0.0], [0.0, -0.4]]))

    method.grow(networks, "second", head_size=2)
    assert weight in method.trainable(networks, "second")[CLASSIFIER]
    held = Held(method, networks, "second")
    optimizer = torch.optim.SGD([weight], 0.1, momentum=0.9, weight_decay=0.1)
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    held.put_back(CLASSIFIER)
    assert torch.equal(weight, torch.tensor([[0.5, -0.1], [-0.1, -0.4]]))
    select_task(network, "first")
    assert torch.equal(network.body(x), torch.tensor([[0.5, -0.4]]))
    select_task(network, "second")
    assert torch.equal(network.body(x), torch.tensor([[0.4, -0.5]]))


def test_pruning_counts_exactly_where_weights_are_equal():
    equal = torch.full((2, 2), 0.1)
    assert smallest(equal, torch.ones(2, 2, dtype=torch.bool), 0.5).tolist() == [[True, True], [False, False]]
    free = torch.tensor([[False, True], [True, True]])
    assert smallest(equal, free, 0.34).tolist() == [[False, True], [False, False]]  # round(1.02)
    assert not smallest(equal, free, 0.1).any()
    order = torch.tensor([[0.3, -0.2], [0.1, -0.4]]).repeat(1, 2)[:, :, None, None]
    last = smallest(order.to(memory_format=torch.channels_last), torch.ones_like(order, dtype=torch.bool), 0.5)
    assert torch.equal(last, order.abs() < 0.25)


@pytest.mark.parametrize("norm", [True, False])
def test_weights_are_shared_out_and_masks_nest(learn, norm):
    learned = learn(PackNet(prune=[0.6, 0.5, 0.0]), epochs=0.5, norm=norm, **ROUGH)
    owned = [learned.method.owned(learned.network, f"shapes-{t}") for t in (1, 2, 3)]
    for name in owned[0]:
        first, second, third = (each[name] for each in owned)
        count = first.numel()
        left = round(0.6 * count)
        assert int(first.sum()) == count - left
        assert int(second.sum()) == count - round(0.5 * left)
        assert third.all()
        assert bool((second | ~first).all())
    free = [record["free-weights"] for record in learned.trainer.records.values()]
    assert free == pytest.approx([0.6, 0.3, 0.0], abs=1e-3)
    for early, late in ((0, 1), (0, 2), (1, 2)):
        task = f"shapes-{early + 1}"
        assert torch.equal(learned.logits[early][task], learned.logits[late][task])


def rebuilt(folder, norm: bool, through: int) -> nn.Module:
    """The network after some task, from files alone."""
    method, network = PackNet(), Tiny(4, norm)
    method.prepare({CLASSIFIER: network}, {CLASSIFIER: AdapterConfig(4, 4, heads=("head",))})
    network.to(memory_format=torch.channels_last)
    read_shared(folder, {CLASSIFIER: network})
    for index in range(through + 1):
        read_task(folder, index, f"shapes-{index + 1}", CLASSIFIER, network, method)
    return network.eval()


@pytest.mark.parametrize("norm", [True, False])
def test_files_alone_rebuild_every_task_to_the_bit(learn, three_tasks, norm):
    learned = learn(PackNet(prune=0.5), epochs=0.5, norm=norm, **ROUGH)
    folder = learned.trainer.folder
    network = rebuilt(folder, norm, 2)
    ours, theirs = network.state_dict(), learned.network.state_dict()
    assert tensors_digest(ours) == tensors_digest(theirs)
    learned.network.eval()
    for index in range(3):
        task, x = f"shapes-{index + 1}", PIXELS(three_tasks[index].test.images)
        alone = rebuilt(folder, norm, index)
        for each in (alone, network, learned.network):
            select_task(each, task)
        with torch.no_grad():
            assert torch.equal(alone(x), network(x))
            assert torch.equal(alone(x), learned.network(x))
    together = Together(network, task_names(network))(PIXELS(three_tasks[0].test.images))
    for answers, task in zip(together, task_names(network), strict=True):
        select_task(network, task)
        with torch.no_grad():
            torch.testing.assert_close(answers, network(PIXELS(three_tasks[0].test.images)), atol=1e-4, rtol=1e-4)


def test_a_file_is_refused_without_those_before_it(learn):
    folder = learn(PackNet(), epochs=0.1).trainer.folder
    network = rebuilt(folder, True, 0)
    with pytest.raises(UserError, match="made for another base"):
        read_task(folder, 2, "shapes-3", CLASSIFIER, network, PackNet())
    metadata = json.loads(read_tensors(folder.task_file(1, "shapes-2"))[1]["bases"])
    assert metadata[CLASSIFIER] == fingerprint(network)


def test_a_file_holds_a_bit_per_weight_and_the_values_that_its_task_added(learn):
    learned = learn(PackNet(prune=0.5), epochs=0.1)
    weights = {"body.0": 16 * 3 * 9, "body.3": 32 * 16 * 9, "body.7": 32 * 512}
    bits = sum(-(-count // 8) for count in weights.values())
    own = 4 * (16 + 32 + 32) + (4 * 4 * (16 + 32) + 2 * 8) + 4 * 33 * 4  # biases, norms and their counters, head
    for index, share in ((0, 0.0), (1, 0.25), (2, 0.125)):  # the first task's weights are in the shared file
        tensors, _ = read_tensors(learned.trainer.folder.task_file(index, f"shapes-{index + 1}"))
        values = 4 * sum(int(share * count) for count in weights.values())
        assert sum(tensor.nbytes for tensor in tensors.values()) == bits + own + values
    grown = growth(learned.network, (3, 16, 16), "shapes-3")
    assert grown.bytes_task == bits + own
    assert grown.adapter_bits == sum(weights.values())
    base = sum(weights.values()) + (16 + 32 + 32) + 2 * (16 + 32) + 33 * 4
    assert grown.parameter_growth == pytest.approx((sum(weights.values()) / 32 + 80) / base)
    assert sum(weights.values()) / 32 / sum(weights.values()) == pytest.approx(0.031, abs=5e-4)  # + 3.1 %


@pytest.mark.parametrize("asked", [9, 10, 11, 12, 13])
def test_a_stop_around_pruning_changes_no_bit(learn, monkeypatch, asked):
    """Six steps a task; the second task is pruned before its fourth."""
    six = {"epochs": 0.3, **ROUGH}
    whole = learn(PackNet(retrain=0.5), out="whole", **six)
    parts = in_two_parts(learn, monkeypatch, lambda: PackNet(retrain=0.5), asked, "parts", **six)
    assert digests(parts) == digests(whole)
    assert [r["free-weights"] for r in parts.trainer.records.values()] == [
        r["free-weights"] for r in whole.trainer.records.values()
    ]


@pytest.mark.parametrize("selection", ["val", "test"])
def test_a_selected_epoch_is_pruned(learn, three_tasks, selection):
    learned = learn(PackNet(prune=0.5), three_tasks[:2], epochs=0.5, selection=selection)
    for own in learned.method.owned(learned.network, "shapes-1").values():
        assert int(own.sum()) == own.numel() // 2
    assert torch.equal(learned.logits[0]["shapes-1"], learned.logits[1]["shapes-1"])


def test_training_that_retrains_nothing_prunes_at_the_end(learn, three_tasks):
    learned = learn(PackNet(prune=0.5, retrain=0.0), three_tasks[:2], epochs=0.2)
    for own in learned.method.owned(learned.network, "shapes-1").values():
        assert int(own.sum()) == own.numel() // 2
    assert torch.equal(learned.logits[0]["shapes-1"], learned.logits[1]["shapes-1"])


def test_a_task_without_free_weights_is_refused(learn):
    with pytest.raises(UserError, match=r"task shapes-2: no weight of the classifier is free.*method\.prune"):
        learn(PackNet(prune=0.0), epochs=0.1)


def test_what_cannot_be_shared_out_is_refused(tiny_classes):
    with pytest.raises(UserError, match=r"packnet cannot share out the classifier's stem.*adapters\.exclude"):
        train_classifier(tiny_classes(PACKNET, "adapters={a: 4, b: 0, exclude: ['stem*']}"), "test")
    for prune in ("1.0", "[]", "[0.5, -0.1]"):
        with pytest.raises(UserError, match=r"method\.prune: a share from 0 to below 1"):
            tiny_classes(f"method={{name: packnet, prune: {prune}}}")


def test_a_run_classifies_as_it_did_and_carries_logits_of_unchanged_tasks(tiny_classes):
    run = train_classifier(tiny_classes(PACKNET), "test")
    again = ClassifierRun(run.folder.path)
    scores = read_scores(run.folder.scores)
    lines = [line for line in scores if line.metric == "accuracy-TIL" and line.tested_on == run.tasks[0]]
    assert [line.details["carried"] for line in lines] == [False, True, True]
    assert len({line.value for line in lines}) == 1
    task, ranked = again.classify(torch.zeros(3, 16, 16, dtype=torch.uint8))
    assert task in run.tasks
    assert sum(share for _, share in ranked) == pytest.approx(1)
    grown = [line.value for line in scores if line.metric == "growth"]
    assert all(1 / 32 - 0.005 < value < 1 / 32 + 0.005 for value in grown)


def test_a_generator_is_shared_out_and_its_average_is_cleared(tiny):
    run = train_gan(tiny(PACKNET, "training.ema_decay=0.5"), "test")
    first, both = run.generator(0), run.generator(1)
    early, late = (run.sample("discs", 5, seed=1, generator=each) for each in (first, both))
    assert torch.equal(early, late)
    shared, _ = read_tensors(run.folder.shared)
    weights = [tensor for key, tensor in shared.items() if key.endswith("layer.weight") and tensor.dim() > 1]
    assert len(weights) == 5
    for weight in weights:
        assert abs(float((weight == 0).float().mean()) - 0.5) < 0.01
    tensors, _ = read_tensors(run.folder.task_file(1, "checks"))
    assert {key.split("/")[0] for key in tensors} == {"generator"}
    assert sum(key.startswith("generator/theta/") for key in tensors) == 5
    grown = [score.value for score in read_scores(run.folder.scores) if score.metric == "growth"]
    assert all(0.005 < value < 1 / 32 for value in grown)  # over both networks; discriminators add nothing
    alone = run.sample("checks", 5, seed=1, generator=run.generator(1, ["checks"]))
    assert torch.equal(alone, run.sample("checks", 5, seed=1, generator=both))
