"""What every method promises: three tasks end to end, exact resume, and frozen things that stay frozen."""

import copy

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, load_task_file, task_names
from eftgan.data.pixels import Pixels
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import forgetting
from eftgan.evaluation.task_inference import logits_by_task
from eftgan.methods import METHODS
from eftgan.methods.feature_margin import FeatureMargin
from eftgan.methods.heads import head_of
from eftgan.names import CLASSIFIER
from eftgan.tensors import tensors_digest
from eftgan.training.checkpoint import read_shared, read_task
from eftgan.training.stopping import Stopped, StopSignal

FOR_CLASSIFIERS = [name for name, method in METHODS.items() if method.suits("classifier")]
# Nothing of an earlier task changes.
KEEPS_ALL = (
    "eft", "batche", "ccll", "piggyback", "supsup", "packnet", "hat", "tfm", "pnn", "rcl", "side", "fixed",
    "separate",
)  # fmt: skip
# A barely trained network has steep losses, so that the usual strengths would be too much for its learning rate.
GENTLE = {
    "ewc": {"strength": 1.0, "samples": 16},
    "ewc-sdc": {"strength": 1.0, "samples": 16},
    "mas": {"strength": 0.001, "samples": 16},
    "apd": {"l2": 10.0},
    "imm": {"samples": 16, "labels": "sampled"},
    "supsup": {"density": 0.5},
    "tfm": {"tasks": 3},
    "rcl": {"trials": 2, "most": [8]},
}
LONGER = {
    "supsup": {"epochs": 6},  # a mask of random weights learns slowly
    "packnet": {"epochs": 4},
    "hat": {"epochs": 4, "rate": 0.1, "momentum": 0.0},
    "hnet": {"epochs": 4},
}
MARGINS = {
    "live": {"reduce": "mean", "delta": 1e4},
    "stored": {"statistics": "stored", "delta": 1e6},
    "l2": {"form": "l2"},
}


def gentle(name):
    return METHODS[name](**GENTLE.get(name, {}))


def from_files(learned) -> nn.Module:
    """A network of which nothing but the run's files is known."""
    folder, network = learned.trainer.folder, copy.deepcopy(learned.fresh)
    read_shared(folder, {CLASSIFIER: network})
    for index, task in enumerate(task_names(learned.network)):
        read_task(folder, index, task, CLASSIFIER, network, learned.method)
    return network.eval()


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("name", KEEPS_ALL)
def test_files_alone_give_every_task_back_as_it_was_learned(learn, three_tasks, name, norm):
    """With momentum and weight decay, which move what a gradient does not reach."""
    learned = learn(gentle(name), norm=norm, epochs=0.3, decay=1e-2)
    network = from_files(learned)
    for index, task in enumerate(three_tasks):
        images = Pixels()(task.test.images)
        (answer,) = logits_by_task(network, [task.name], lambda images=images: [images])
        assert torch.equal(answer, learned.logits[index][task.name])


CHAINED = [name for name in FOR_CLASSIFIERS if METHODS[name].chained]


@pytest.mark.parametrize("name", CHAINED)
def test_a_later_file_of_tasks_that_add_to_the_shared_weights_is_not_read_alone(learn, name):
    learned = learn(gentle(name), epochs=0.1)
    folder, network = learned.trainer.folder, copy.deepcopy(learned.fresh)
    read_shared(folder, {CLASSIFIER: network})
    for index in (1, 2):
        with pytest.raises(UserError, match="its file only makes sense after those of all tasks before it"):
            load_task_file(network, folder.task_file(index, f"shapes-{index + 1}"))
    assert load_task_file(network, folder.task_file(0, "shapes-1")) == "shapes-1"


@pytest.mark.parametrize("name", FOR_CLASSIFIERS)
def test_three_tasks_end_to_end(learn, name):
    learned = learn(gentle(name), **LONGER.get(name, {}))
    assert sorted(learned.matrix) == [(after, on) for after in range(3) for on in range(after + 1)]
    assert learned.matrix[0, 0] > 0.4  # of four classes
    assert set(learned.trainer.records) == {"shapes-1", "shapes-2", "shapes-3"}
    if name in KEEPS_ALL:
        first, second, third = learned.logits
        assert torch.equal(first["shapes-1"], second["shapes-1"])
        assert torch.equal(first["shapes-1"], third["shapes-1"])
        assert torch.equal(second["shapes-2"], third["shapes-2"])
        assert forgetting(learned.matrix, 2) == 0


@pytest.mark.parametrize("name", FOR_CLASSIFIERS)
def test_half_precision_trains_three_tasks_and_leaves_parameters_whole(learn, needs_number_type, name):
    needs_number_type(torch.bfloat16)
    learned = learn(gentle(name), epochs=0.2, mixed_precision="bf16")
    state = learned.network.state_dict()
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {torch.float32}
    assert all(value.isfinite().all() for value in state.values() if value.is_floating_point())
    if name in KEEPS_ALL:
        assert torch.equal(learned.logits[0]["shapes-1"], learned.logits[2]["shapes-1"])


def stop_at(step, monkeypatch):
    """Ask for a stop after so many steps of the whole run."""
    calls = iter(range(1, 10_000))
    monkeypatch.setattr(StopSignal, "requested", lambda self: next(calls) == step)


ALIKE = ("l2t", "mas", "fixed", "joint", "separate", "finetune")  # others go on by the same lines
GO_ON = [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in FOR_CLASSIFIERS]


@pytest.mark.parametrize("name", GO_ON)
def test_going_on_after_a_stop_in_mid_task_changes_no_bit(learn, monkeypatch, name):
    whole = learn(gentle(name), epochs=0.3, out="whole")
    stop_at(9, monkeypatch)  # six steps a task: in the midst of the second
    with pytest.raises(Stopped):
        learn(gentle(name), epochs=0.3, out="parts")
    monkeypatch.undo()
    parts = learn(gentle(name), epochs=0.3, out="parts")
    assert tensors_digest(parts.network.state_dict()) == tensors_digest(whole.network.state_dict())
    assert tensors_digest(parts.method.state_dict()) == tensors_digest(whole.method.state_dict())
    assert parts.matrix[2, 0] == whole.matrix[2, 0]


@pytest.mark.parametrize("fused", [True, False])
def test_adam_goes_on_after_a_stop_with_the_same_bits_fused_or_plain(learn, monkeypatch, fused):
    def run(out):
        adam = {"optimizer": "adam", "fused_adam": fused, "rate": 1e-3}
        return learn(METHODS["finetune"](), epochs=0.3, out=out, **adam).network.state_dict()

    whole = run("whole")
    stop_at(9, monkeypatch)
    with pytest.raises(Stopped):
        run("parts")
    monkeypatch.undo()
    assert tensors_digest(run("parts")) == tensors_digest(whole)


def test_the_fused_form_of_adam_differs_in_rounding_alone(learn, three_tasks):
    plain, fused = (
        learn(
            METHODS["finetune"](), three_tasks[:1], norm=False, epochs=0.3, rate=1e-3, out=str(form), optimizer="adam",
            fused_adam=form,
        ).network.state_dict()
        for form in (False, True)
    )  # fmt: skip
    for key, tensor in plain.items():
        torch.testing.assert_close(fused[key], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", MARGINS)
def test_a_margin_trains_resumes_and_reports_its_activity(learn, monkeypatch, name):
    def eft():
        return METHODS["eft"](margin=FeatureMargin(**MARGINS[name]))

    whole = learn(eft(), epochs=0.3, out="whole")
    stop_at(9, monkeypatch)
    with pytest.raises(Stopped):
        learn(eft(), epochs=0.3, out="parts")
    monkeypatch.undo()
    parts = learn(eft(), epochs=0.3, out="parts")
    assert tensors_digest(parts.network.state_dict()) == tensors_digest(whole.network.state_dict())
    assert torch.equal(whole.logits[0]["shapes-1"], whole.logits[2]["shapes-1"])
    assert 0 < whole.trainer.records["shapes-2"]["active-margin"] <= 1
    assert parts.trainer.records["shapes-2"]["active-margin"] == whole.trainer.records["shapes-2"]["active-margin"]


def test_the_settings_of_the_authors_notebooks_resume_to_the_same_bits(learn, monkeypatch):
    def run(out, rotation=10.0):
        method = METHODS["eft"](first_init="random", heads="previous", margin=FeatureMargin(form="l2"))
        return learn(method, epochs=0.3, out=out, augment=True, rotation=rotation)

    whole = run("whole")
    stop_at(9, monkeypatch)
    with pytest.raises(Stopped):
        run("parts")
    monkeypatch.undo()
    assert tensors_digest(run("parts").network.state_dict()) == tensors_digest(whole.network.state_dict())
    assert tensors_digest(run("upright", 0.0).network.state_dict()) != tensors_digest(whole.network.state_dict())


def test_a_head_starts_from_the_one_before_where_both_have_as_many_classes(two_layers):
    network = two_layers()
    method = METHODS["eft"](heads="previous")
    networks = {CLASSIFIER: network}
    method.prepare(networks, {CLASSIFIER: AdapterConfig(1, 1, heads=("head",), parts=("heads",))})
    for task, classes in (("one", 3), ("two", 3), ("three", 5), ("four", 5)):
        method.grow(networks, task, head_size=classes)
    one, two, three, four = (head_of(network, task) for task in ("one", "two", "three", "four"))
    assert torch.equal(one.weight, two.weight)
    assert torch.equal(one.bias, two.bias)
    assert two.weight is not one.weight
    assert three.weight.shape == (5, 2)
    assert torch.equal(three.weight, four.weight)


THOROUGH = {"epochs": 10, "rate": 0.03, "norm": False}  # BatchNorm's statistics are protected by none of these
STRENGTHS = {
    "lwf": 1.0, "lfl": 0.1, "ewc": 300.0, "si": 5.0, "mas": 0.1, "rwalk": 10.0, "l2t": 0.5, "imm": 0.5, "hnet": 0.5,
}  # fmt: skip


def forgotten(learn, name, seed, **keys):
    return forgetting(learn(METHODS[name](**keys), seed=seed, out=f"{name}-{seed}", **THOROUGH).matrix, 2)


@pytest.mark.slow
def test_fine_tuning_forgets_and_its_remedies_forget_less(learn):
    """One seed and one of each family, in CI. All, and the mean over four seeds: below."""
    lost = forgotten(learn, "finetune", 0)
    assert lost > 0.1
    for name in ("lwf", "ewc"):
        assert forgotten(learn, name, 0, strength=STRENGTHS[name]) < lost, name


@pytest.mark.slow
def test_remedies_forget_less_on_average_over_seeds(learn):
    """LwF and L2-transfer halve it on average, but not with every seed; the others are far below in each."""
    seeds = range(4)
    lost = [forgotten(learn, "finetune", seed) for seed in seeds]
    for name, strength in STRENGTHS.items():
        kept = [forgotten(learn, name, seed, strength=strength) for seed in seeds]
        assert sum(kept) < 0.6 * sum(lost), name
        assert name in ("lwf", "l2t") or all(k < 0.5 * f for k, f in zip(kept, lost, strict=True)), name


@pytest.mark.parametrize("alone", ["separate", "finetune"])
def test_separate_equals_training_each_task_alone(learn, three_tasks, alone):
    together = learn(METHODS["separate"](), epochs=0.5, out="together")
    for task in three_tasks[:2]:
        single = learn(METHODS[alone](), [task], epochs=0.5, out=f"{alone}-{task.name}")
        assert torch.equal(single.logits[0][task.name], together.logits[2][task.name])


def test_fixed_representation_leaves_batchnorm_statistics_alone(learn, three_tasks):
    first = learn(METHODS["fixed"](), three_tasks[:1], epochs=0.5, out="first")
    all_three = learn(METHODS["fixed"](), epochs=0.5, out="three")
    before, after = (each.network.state_dict() for each in (first, all_three))
    statistics = [key for key in before if "running" in key or "num_batches" in key]
    assert statistics
    assert all(torch.equal(before[key], after[key]) for key in statistics)


@pytest.mark.parametrize("selection", ["val", "test"])
def test_selection_resumes_and_says_which_epoch(learn, three_tasks, monkeypatch, selection):
    def run(out):
        return learn(METHODS["si"](), three_tasks[:1], epochs=0.6, out=out, selection=selection)

    whole = run("whole")
    record = whole.trainer.records["shapes-1"]
    assert 0 < record["epoch"] <= 1
    assert 0 <= record["best accuracy"] <= 1
    for step in (5, 14):  # in the search; for val the second is in the final training
        if step >= record["steps"]:
            continue
        stop_at(step, monkeypatch)
        with pytest.raises(Stopped):
            run(f"parts{step}")
        monkeypatch.undo()
        parts = run(f"parts{step}")
        assert tensors_digest(parts.network.state_dict()) == tensors_digest(whole.network.state_dict())
        assert tensors_digest(parts.method.state_dict()) == tensors_digest(whole.method.state_dict())


def test_validation_ends_like_training_on_all_images_for_the_best_number_of_epochs(learn, three_tasks):
    options = {"rate": 0.02, "milestones": [9.0]}
    chosen = learn(METHODS["finetune"](), three_tasks[:1], epochs=2, out="val", selection="val", **options)
    epochs = chosen.trainer.records["shapes-1"]["epoch"]
    alone = learn(METHODS["finetune"](), three_tasks[:1], epochs=epochs, out="alone", **options)
    assert tensors_digest(chosen.network.state_dict()) == tensors_digest(alone.network.state_dict())
