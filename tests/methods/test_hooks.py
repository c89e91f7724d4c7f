"""The hooks that trainers offer to methods, each proven by the smallest method that needs it."""

import shutil
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F

from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.methods import METHODS, Eft, Finetune, Group, Method, MethodStage, Moment
from eftgan.methods.base import seen_tasks
from eftgan.names import CLASSIFIER, GENERATOR
from eftgan.tensors import read_tensors, tensors_digest
from eftgan.training.stopping import Stopped, StopSignal

from .conftest import PIXELS

SIX_STEPS = {"epochs": 0.3}  # a task of the three has 400 images, in batches of 20


def digests(learned) -> tuple[str, str]:
    return tensors_digest(learned.network.state_dict()), tensors_digest(learned.method.state_dict())


def in_two_parts(learn, monkeypatch, make, asked: int, out: str, **settings):
    """Stop from the time on that training asks whether to stop for the `asked`-th time, and go on."""
    calls = iter(range(1, 10_000))
    monkeypatch.setattr(StopSignal, "requested", lambda self: next(calls) >= asked)
    with pytest.raises(Stopped):
        learn(make(), out=out, **settings)
    monkeypatch.undo()
    return learn(make(), out=out, **settings)


# writable: entries of a layer


@dataclass
class HoldsHalf(Method):
    """From the second task on, every other entry of the shared weights is held."""

    name: str = "holds-half"
    parameters: ClassVar[dict[str, str]] = {CLASSIFIER: "body", GENERATOR: "layer.weight"}  # which of them

    def writable(self, role, network, task):
        first = seen_tasks({role: network})[0] == task
        if first or role not in self.parameters:
            return None
        return {n: every_other(p) for n, p in network.named_parameters() if self.parameters[role] in n}


def every_other(parameter: torch.Tensor) -> torch.Tensor:
    return torch.arange(parameter.numel()).view(parameter.shape) % 2 == 0


@pytest.mark.parametrize("norm", [True, False])
def test_held_entries_stay_bit_identical_under_momentum_and_weight_decay(learn, three_tasks, norm):
    settings = {"epochs": 0.5, "decay": 0.01, "norm": norm, "momentum": 0.9}
    first = learn(HoldsHalf(), three_tasks[:1], out="first", **settings)
    whole = learn(HoldsHalf(), out="whole", **settings)
    before, after = (dict(each.network.named_parameters()) for each in (first, whole))
    checked = [name for name in before if "body" in name]
    assert len(checked) >= 6
    for name in checked:
        free = every_other(before[name])
        assert torch.equal(before[name][~free], after[name][~free]), name
        assert not torch.isclose(before[name][free], after[name][free], rtol=1e-6).any(), name


@pytest.mark.parametrize("asked", [9, 12, 14])
def test_held_entries_resume_in_mid_task_to_the_same_bits(learn, monkeypatch, asked):
    whole = learn(HoldsHalf(), out="whole", **SIX_STEPS)
    parts = in_two_parts(learn, monkeypatch, HoldsHalf, asked, "parts", **SIX_STEPS)
    assert digests(parts) == digests(whole)


def test_a_method_that_writes_held_entries_itself_fails_loudly(learn, three_tasks):
    class Vandal(HoldsHalf):
        def end_task(self, networks, task, probe):
            with torch.no_grad():
                networks[CLASSIFIER].body[0].weight.add_(1e-3)

    with pytest.raises(RuntimeError, match="must stay frozen"):
        learn(Vandal(), three_tasks[:2], **SIX_STEPS)


@pytest.mark.parametrize(("name", "mask"), [("body.9.weight", [True]), ("head.layer.bias", [1.0] * 4)])
def test_masks_that_fit_no_parameter_are_refused(learn, three_tasks, name, mask):
    class Wrong(Method):
        def writable(self, role, network, task):
            return {name: torch.tensor(mask)}

    with pytest.raises(ValueError, match=name):
        learn(Wrong(), three_tasks[:1], **SIX_STEPS)


def test_held_entries_of_a_generator_stay_bit_identical_in_its_average(tiny, monkeypatch):
    monkeypatch.setitem(METHODS, "holds-half", HoldsHalf)
    run = train_gan(tiny("method={name: holds-half}", "training.ema_decay=0.3"), "test")
    before, after = (dict(run.generator(index).named_parameters()) for index in (0, 1))
    names = [name for name in before if "layer.weight" in name and not torch.equal(before[name], after[name])]
    assert len(names) == 4  # all convolutions
    for name in names:
        free = every_other(before[name])
        assert torch.equal(before[name][~free], after[name][~free]), name


# stages


@dataclass
class HeadFirst(Method):
    """The first third of a later task trains its head alone; then the head is halved, and everything trains."""

    name: str = "head-first"
    calls: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.stage = torch.zeros((), dtype=torch.int64)

    def stages(self, first):
        return [MethodStage()] if first else [MethodStage("head", 1 / 3), MethodStage("all", 2 / 3)]

    def begin_stage(self, networks, task, stage):
        self.calls.append(f"begin {task} {stage}")
        self.stage = torch.tensor(stage == "head")
        if stage == "all":
            with torch.no_grad():
                list(networks[CLASSIFIER].head.tasks.values())[-1].weight.mul_(0.5)

    def end_stage(self, networks, task, stage):
        self.calls.append(f"end {task} {stage}")

    def trainable(self, networks, task):
        found = super().trainable(networks, task)
        if self.stage:
            networks[CLASSIFIER].body.requires_grad_(False)
            found[CLASSIFIER] = [p for p in found[CLASSIFIER] if p.requires_grad]
        return found

    def state_dict(self):
        return {"stage": self.stage}

    def load_state_dict(self, state, networks):
        self.stage = state["stage"].clone()


def test_stages_divide_a_task_and_each_trains_what_it_says(learn):
    seen = {}

    class Watching(HeadFirst):
        def note(self, networks, key):
            body = networks[CLASSIFIER].body
            seen[key] = [p.detach().clone() for p in body.parameters()]

        def begin_stage(self, networks, task, stage):
            super().begin_stage(networks, task, stage)
            self.note(networks, self.calls[-1])

        def end_stage(self, networks, task, stage):
            super().end_stage(networks, task, stage)
            self.note(networks, self.calls[-1])

    learned = learn(Watching(), **SIX_STEPS)
    expected = ["begin shapes-1 train", "end shapes-1 train"]
    for task in ("shapes-2", "shapes-3"):
        expected += [f"begin {task} head", f"end {task} head", f"begin {task} all", f"end {task} all"]
    assert learned.method.calls == expected
    assert [record["steps"] for record in learned.trainer.records.values()] == [6, 6, 6]
    for early, late in zip(seen["begin shapes-2 head"], seen["end shapes-2 head"], strict=True):
        assert torch.equal(early, late)
    for early, late in zip(seen["begin shapes-2 all"], seen["end shapes-2 all"], strict=True):
        assert not torch.equal(early, late)


@pytest.mark.parametrize("asked", [8, 9, 10, 13])
def test_every_stage_begins_and_ends_once_across_resumes(learn, monkeypatch, asked):
    """Training asks after every step and every task: the second task's stages end with the 9th and the 13th time."""
    calls: list[str] = []
    whole = learn(HeadFirst(), out="whole", **SIX_STEPS)
    parts = in_two_parts(learn, monkeypatch, lambda: HeadFirst(calls=calls), asked, "parts", **SIX_STEPS)
    assert digests(parts) == digests(whole)
    assert calls == whole.method.calls


@pytest.mark.parametrize("selection", ["val", "test"])
def test_several_stages_are_refused_where_the_best_epoch_is_chosen(learn, selection):
    with pytest.raises(UserError, match=r"training.selection: head-first trains a task in several stages"):
        learn(HeadFirst(), selection=selection)


def test_several_stages_are_refused_for_gans(tiny, monkeypatch):
    monkeypatch.setitem(METHODS, "head-first", HeadFirst)
    with pytest.raises(UserError, match="head-first trains a task in several stages"):
        train_gan(tiny("method={name: head-first}"), "test")


# begin_step


@dataclass
class Anneals(Method):
    """A pull of all weights towards zero that fades over the stage."""

    name: str = "anneals"

    def __post_init__(self):
        self.seen: list[tuple[str, Moment]] = []

    def begin_step(self, role, networks, moment):
        self.seen.append((role, moment))
        self.strength = 0.1 * (1 - moment.share)

    def penalty(self, role, networks, batch):
        return self.strength * sum(p.square().sum() for p in networks[role].parameters() if p.requires_grad)


def test_a_step_knows_its_moment_and_resumes_to_the_same_bits(learn, monkeypatch):
    whole = learn(Anneals(), out="whole", **SIX_STEPS)
    moments = [moment for _, moment in whole.method.seen]
    assert [m.step for m in moments] == [0, 1, 2, 3, 4, 5] * 3
    assert [m.share for m in moments] == pytest.approx([step / 6 for step in range(6)] * 3)
    assert [m.epoch for m in moments] == pytest.approx([step * 20 / 400 for step in range(6)] * 3)
    parts = in_two_parts(learn, monkeypatch, Anneals, 9, "parts", **SIX_STEPS)
    assert digests(parts) == digests(whole)
    constant = learn(Method(), out="constant", **SIX_STEPS)
    assert digests(constant)[0] != digests(whole)[0]


def test_moments_begin_anew_with_every_stage(learn, three_tasks):
    @dataclass
    class Both(Anneals, HeadFirst):
        def __post_init__(self):
            Anneals.__post_init__(self)
            HeadFirst.__post_init__(self)

    learned = learn(Both(), three_tasks[:2], **SIX_STEPS)
    assert [m.share for _, m in learned.method.seen[6:]] == pytest.approx([0, 1 / 2, 0, 1 / 4, 2 / 4, 3 / 4])
    assert [m.epoch for _, m in learned.method.seen[6:]] == pytest.approx([0, 0.05, 0, 0.05, 0.1, 0.15])


def test_a_gan_step_of_several_batches_begins_once_per_network(tiny, monkeypatch):
    monkeypatch.setitem(METHODS, "anneals", Anneals)
    experiment = tiny("method={name: anneals}", "training.accumulation=2", "training.batch=2", "training.steps=3")
    train_gan(experiment, "test")
    moments = [Moment(0, 0.0), Moment(1, 1 / 3), Moment(2, 2 / 3)] * 2  # two tasks
    assert experiment.method.seen == [(role, m) for m in moments for role in (GENERATOR, "discriminator32")]


# groups


@dataclass
class Grouped(Method):
    """The shared weights stand in one group, heads in another."""

    name: str = "grouped"
    body: dict = field(default_factory=dict)
    head: dict = field(default_factory=dict)

    def groups(self, role, parameters):
        of_head = [p for p in parameters if p.shape[:1] == (4,)]  # weight and bias of four classes
        rest = [p for p in parameters if not any(p is each for each in of_head)]
        return [Group(rest, **self.body), Group(of_head, **self.head)]


@pytest.mark.parametrize(
    ("group", "settings"),
    [
        ({}, {}),
        ({"rate": 2.0}, {"rate": 0.1}),  # through the milestone, where it falls
        ({"momentum": 0.0}, {"momentum": 0.0}),
        ({"decay": 0.0}, {"decay": 0.0}),
    ],
)
def test_a_setting_of_all_groups_is_the_same_as_that_of_the_training(learn, group, settings):
    by_group = learn(Grouped(body=group, head=group), out="by-group", **SIX_STEPS)
    by_training = learn(Finetune(), out="by-training", **SIX_STEPS, **settings)
    assert digests(by_group)[0] == digests(by_training)[0]


def test_a_group_has_its_own_rate_and_momentum_across_a_resume(learn, monkeypatch, three_tasks):
    def make(momentum=0.5):
        return Grouped(body={"rate": 0.0}, head={"momentum": momentum})

    first = learn(make(), three_tasks[:1], out="first", norm=False, epochs=0.05)
    whole = learn(make(), out="whole", norm=False, **SIX_STEPS)
    other = learn(make(0.9), out="other", norm=False, **SIX_STEPS)
    for early, late in zip(first.network.body.parameters(), whole.network.body.parameters(), strict=True):
        assert torch.equal(early, late)  # as it was made
    for ours, theirs in zip(whole.network.head.tasks.parameters(), other.network.head.tasks.parameters(), strict=True):
        assert not torch.isclose(ours, theirs, rtol=1e-6).all()
    parts = in_two_parts(learn, monkeypatch, make, 9, "parts", norm=False, **SIX_STEPS)
    assert digests(parts) == digests(whole)


def test_groups_of_a_gan(tiny, monkeypatch):
    @dataclass
    class Fast(Method):
        name: str = "fast"

        def groups(self, role, parameters):
            return [Group(parameters[:3], 2.0, momentum=0.25), Group(parameters[3:], 2.0, momentum=0.25)]

    monkeypatch.setitem(METHODS, "fast", Fast)
    by_group = train_gan(tiny("method={name: fast}", "training.decay=0.5", out="by-group"), "test")
    words = ("training.decay=0.5", "training.learning_rate=4e-4", "training.betas=[0.25, 0.999]")
    by_training = train_gan(tiny("method={name: finetune}", *words, out="by-training"), "test")
    ours, theirs = (read_tensors(run.folder.task_file(1, "checks"))[0] for run in (by_group, by_training))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_groups_that_forget_a_parameter_are_refused(learn):
    class Forgetful(Method):
        def groups(self, role, parameters):
            return [Group(parameters[1:])]

    with pytest.raises(ValueError, match="groups of the classifier"):
        learn(Forgetful())


# objective


def test_an_objective_takes_the_place_of_cross_entropy(learn):
    @dataclass
    class Doubled(Method):
        stages_seen: set = field(default_factory=set)

        def objective(self, stage, batch, usual):
            self.stages_seen.add(stage)
            assert torch.equal(usual(), F.cross_entropy(batch.outputs, batch.labels))
            return 2 * usual()

    doubled = learn(Doubled(), out="doubled", decay=0.0, **SIX_STEPS)
    faster = learn(Method(), out="faster", decay=0.0, rate=0.1, **SIX_STEPS)
    assert digests(doubled)[0] == digests(faster)[0]  # a factor of two is exact
    assert doubled.method.stages_seen == {"train"}


# snapshot and restore


@dataclass
class Negated(Eft):
    """Keeps its tasks with the sign turned round, so that only its own restore can read them."""

    def snapshot(self, networks, task):
        return {key: -tensor for key, tensor in super().snapshot(networks, task).items()}

    def restore(self, networks, task, tensors):
        super().restore(networks, task, {key: -tensor for key, tensor in tensors.items()})


REPEATED = ("batche", "packnet", "ccll", "piggyback", "supsup", "hat", "tfm", "fixed", "separate")


@pytest.mark.parametrize(
    "method",
    [
        *(Negated, Eft, METHODS["pnn"], METHODS["rcl"]),
        *(pytest.param(METHODS[name], marks=pytest.mark.slow) for name in REPEATED),
    ],
)
def test_training_goes_on_from_task_files_as_the_method_puts_them_back(learn, three_tasks, tmp_path, method):
    whole = learn(method(), out="whole", **SIX_STEPS)
    learn(method(), three_tasks[:2], out="parts", **SIX_STEPS)
    shutil.rmtree(tmp_path / "parts" / "state")
    parts = learn(method(), out="parts", **SIX_STEPS)
    assert digests(parts)[0] == digests(whole)[0]


# Probe.labelled


@dataclass
class Keeps(Method):
    """Keeps the images of the last task, as replay would."""

    name: str = "keeps"

    def end_task(self, networks, task, probe):
        network = networks[next(iter(networks))]
        network.train()
        pairs = []
        for inputs, labels in probe.labelled(next(iter(networks))):
            assert not any(module.training for module in network.modules())
            pairs.append((inputs, labels))
        assert all(module.training for module in network.modules())
        self.inputs, self.labels = (torch.cat(each) for each in zip(*pairs, strict=True))


def test_a_classifier_shows_its_labelled_images_without_augmentation(learn, three_tasks):
    def label_by_image(images, labels):
        return {image.numpy().tobytes(): int(label) for image, label in zip(images, labels, strict=True)}

    kept, train = learn(Keeps(), three_tasks[:1], augment=True, **SIX_STEPS).method, three_tasks[0].train
    assert len(kept.labels) == 400
    assert label_by_image(kept.inputs, kept.labels) == label_by_image(PIXELS(train.images), train.targets)


def test_a_gan_has_no_labels_to_show(tiny, monkeypatch):
    monkeypatch.setitem(METHODS, "keeps", Keeps)
    with pytest.raises(RuntimeError, match="the training of a generator does not show this"):
        train_gan(tiny("method={name: keeps}"), "test")
