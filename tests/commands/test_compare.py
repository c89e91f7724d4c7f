"""Comparing methods: one first task, the same data, one report."""

from pathlib import Path

import pytest
import torch

from eftgan.adapters import Together, merge_task, task_state
from eftgan.adapters.taskfile import read_task_file
from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.classifier.kind import CLASSIFIERS, train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.commands import main
from eftgan.config import build, dump, plain
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import CIL
from eftgan.evaluation.rules import rule_named
from eftgan.files import file_digest
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer
from eftgan.kinds import KINDS, load_kind
from eftgan.methods import METHODS
from eftgan.scores import REAL, read_scores
from eftgan.studies.comparison import compare_methods, first_task, plan_comparison, shared_first_task
from eftgan.tensors import read_tensors, tensors_digest
from eftgan.training.trainer import Trainer

from ..conftest import ROOT, TINY

METRICS = ["FD-random", "KID-random"]


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "tiny.yaml"
    lines = [word.replace("=", ": ", 1) for word in TINY]
    lines[3] = "evaluation: {features: random, samples: 8}"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_methods_share_the_first_task_and_land_in_one_report(config, tmp_path):
    out = tmp_path / "compare"
    methods = ["finetune", "ewc", "mergan", "joint", "eft", "separate"]
    files = compare_methods(config, [], methods, [0], out)
    scores = {
        name: {(s.trained_through, s.tested_on): s.value for s in read_scores(out / f"{name}-seed0" / "scores.jsonl")
               if s.metric == "FD-random"}
        for name in methods
    }  # fmt: skip
    first = {name: cells["discs", "discs"] for name, cells in scores.items() if name != "separate"}
    assert len(set(first.values())) == 1
    for name, cells in scores.items():
        if name in ("eft", "separate"):
            assert ("checks", "discs") not in cells  # it is as just learned
        else:
            assert cells["checks", "discs"] != cells["discs", "discs"]
    page = files[0].read_text()
    for title in ("Finetune", "EWC", "MeRGAN-RA", "Joint (bound)", "EFT"):
        assert title in page


@pytest.mark.slow
def test_a_method_that_takes_over_the_first_task_equals_one_that_trained_it(config, tmp_path, tiny):
    for method in ("eft", "mergan", "si"):  # si must see every step, and so trains it itself
        alone = train_gan(tiny(f"method={{name: {method}}}", out=f"alone-{method}"), "test")
        compare_methods(config, [], [method], [0], tmp_path / "compare")
        other = GanRun(tmp_path / "compare" / f"{method}-seed0")
        for index, task in enumerate(alone.trained):
            mine, theirs = (run.folder.task_file(index, task) for run in (alone, other))
            assert file_digest(mine) == file_digest(theirs), (method, task)


def test_the_first_task_is_measured_once_for_all_that_start_from_it(config, tmp_path, monkeypatch):
    out, measured = tmp_path / "compare", []
    measure = RunScorer._measure

    def noting(self, through, tested, *further):
        measured.append((self.run.folder.path.name, through, tested))
        return measure(self, through, tested, *further)

    monkeypatch.setattr(RunScorer, "_measure", noting)
    compare_methods(config, [], ["finetune", "eft"], [0], out)
    first, finetune, eft = "first-seed0", "finetune-seed0", "eft-seed0"
    assert measured == [(first, 0, 0), (finetune, 1, 0), (finetune, 1, 1), (eft, 1, 1)]
    for name in (finetune, eft):
        lines = {
            (s.run, s.trained_through, s.tested_on): s
            for s in read_scores(out / name / "scores.jsonl")
            if s.metric == "FD-random"
        }
        assert lines[name, "discs", "discs"].details["carried"] is True
        assert {(name, REAL, "discs"), (name, REAL, "checks")} < set(lines)


@pytest.mark.parametrize("samples", [8, 20])  # of 24 real images at most 12 are set against the others
def test_the_distance_of_real_images_is_taken_over_whatever_its_number(config, tmp_path, samples):
    compare_methods(config, [f"evaluation.samples={samples}"], ["eft"], [0], tmp_path)
    first, other = (read_scores(tmp_path / name / "scores.jsonl") for name in ("first-seed0", "eft-seed0"))
    floor = [
        [(s.metric, s.value, s.n) for s in lines if (s.trained_through, s.tested_on) == (REAL, "discs")]
        for lines in (first, other)
    ]
    assert floor[0] == floor[1]
    assert [(metric, n) for metric, _, n in floor[0]] == [(metric, min(samples, 12)) for metric in METRICS]


def test_recipes_of_every_kind_of_transforms_begin_with_one_neutral_first_task(tmp_path):
    recipes = ["gan-memory", "cam-gan", "lfs", "color", "lora"]
    planned = plan_comparison(ROOT / "configs/gan/shapes.yaml", [], [*recipes, "finetune"], [0], tmp_path)
    firsts = {job.name: job.needs.name for job in planned.jobs}
    assert firsts == {f"{name}-seed0": "first-neutral-seed0" for name in recipes} | {"finetune-seed0": "first-seed0"}
    assert len({job.experiment.adapters.kind for job in planned.jobs[:-1]}) == len(recipes)


@pytest.mark.parametrize("method", ["eft"])
def test_a_take_over_that_was_cut_short_between_its_state_and_its_file_goes_on(config, tmp_path, method, monkeypatch):
    whole, cut = (tmp_path / name for name in ("whole", "cut"))
    compare_methods(config, [], [method], [0], whole)

    def write_task(trainer, *words):
        if trainer.start:
            raise KeyboardInterrupt
        original(trainer, *words)

    original = Trainer._write_task
    monkeypatch.setattr(Trainer, "_write_task", write_task)
    with pytest.raises(KeyboardInterrupt):
        compare_methods(config, [], [method], [0], cut)
    monkeypatch.undo()
    assert len(list((cut / f"{method}-seed0" / "state").iterdir())) == 1
    assert not (cut / f"{method}-seed0" / "tasks").exists()
    compare_methods(config, [], [method], [0], cut)
    files = [
        {path.name: tensors_digest(read_tensors(path)[0]) for path in (out / f"{method}-seed0").rglob("*.safetensors")}
        for out in (whole, cut)
    ]
    assert len(files[0]) >= 4
    assert files[0] == files[1]


def test_a_second_call_trains_nothing_again(config, tmp_path):
    out = tmp_path / "compare"
    compare_methods(config, [], ["eft"], [0], out)
    states = {path: path.stat().st_mtime_ns for path in out.rglob("state/*")}
    lines = (out / "eft-seed0" / "scores.jsonl").read_text()
    compare_methods(config, [], ["eft"], [0], out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("state/*")} == states
    assert (out / "eft-seed0" / "scores.jsonl").read_text() == lines


@pytest.mark.slow
def test_classifiers_that_take_over_the_first_task_equal_those_that_trained_it(tmp_path, tiny_classes):
    config, out = tmp_path / "classes.yaml", tmp_path / "compare"
    config.write_text(dump(tiny_classes()))
    methods = ("finetune", "lwf", "ewc", "si", "eft")
    assert "EWC" in compare_methods(config, [], methods, [0], out)[0].read_text()
    for method in methods:
        alone = train_classifier(tiny_classes(f"method={{name: {method}}}", out=f"alone-{method}"), "test")
        other = ClassifierRun(out / f"{method}-seed0")
        assert (other.experiment.start is None) == (method in ("si", "eft"))
        for index, task in enumerate(alone.trained):
            mine, theirs = (run.folder.task_file(index, task) for run in (alone, other))
            assert file_digest(mine) == file_digest(theirs), (method, task)
        facts = [{(s.tested_on, s.metric, s.n) for s in read_scores(run.folder.scores)} for run in (alone, other)]
        assert facts[0] == facts[1]


def test_a_rule_that_the_methods_allow_need_not_suit_the_first_task_that_they_share(tmp_path, tiny_classes):
    (config := tmp_path / "classes.yaml").write_text(dump(tiny_classes("sources.0.take=2")))
    compare_methods(config, ["inference=entropy+common"], ["fixed"], [0], tmp_path / "compare")
    first, fixed = (ClassifierRun(tmp_path / "compare" / f"{name}-seed0") for name in ("first", "fixed"))
    assert (first.experiment.method.name, first.experiment.inference) == ("finetune", "auto")
    for index, task in enumerate(fixed.tasks):
        kept = read_task_file(fixed.folder.task_file(index, task)).states["inference"]
        assert set(kept) == set(rule_named("entropy+common").kept_by(index))
    lines = [s for s in read_scores(fixed.folder.scores) if s.metric == CIL]
    assert [s.details["inference"] for s in lines] == ["entropy+common"] * 3
    with pytest.raises(UserError, match="inference: entropy\\+common has every task keep something"):
        plan_comparison(config, ["inference=entropy+common"], ["lwf"], [0], tmp_path / "refused")


def test_a_first_task_of_fine_tuning_does_without_what_is_for_other_methods(tmp_path, tiny_classes):
    for words in (["method=dmc", "auxiliary={data: 'shapes:6'}"], ["method=fixed", "inference=density"]):
        experiment = tiny_classes(*words)
        assert shared_first_task(CLASSIFIERS, experiment) == "first"
        first = first_task(CLASSIFIERS, plain(experiment), 0, tmp_path)
        assert (first.method.name, first.task_names) == ("finetune", experiment.task_names[:1])


def test_methods_that_change_all_weights_have_recipes_for_a_cpu_with_one_first_task(tmp_path):
    rates = {"finetune": 0.01, "ewc": 0.01, "ewc-sdc": 0.01, "lfl": 0.05, "imm": 0.05, "dmc": 0.02}
    planned = plan_comparison(ROOT / "configs/classifier/cifar100_10_cpu.yaml", [], list(rates), [0], tmp_path)
    assert {job.needs.name for job in planned.jobs} == {"first-seed0"}
    later = {job.experiment.method.name: job.experiment.training.later for job in planned.jobs}
    assert {name: schedule.learning_rate for name, schedule in later.items()} == rates
    assert {name: schedule.epochs for name, schedule in later.items() if schedule.epochs != 5} == {"dmc": 16}
    assert {schedule.weight_decay for schedule in later.values()} == {5e-4}
    assert [job.experiment.auxiliary.data for job in planned.jobs if job.experiment.auxiliary] == ["data/cifar10"]


def test_a_frozen_base_has_a_first_task_of_its_own(tiny_classes):
    pretrained = tiny_classes("method={name: fixed, base: pretrained}", "network.weights=base.safetensors")
    assert shared_first_task(CLASSIFIERS, pretrained) is None
    assert shared_first_task(CLASSIFIERS, tiny_classes("method=fixed")) == "first"


def test_a_method_of_the_other_kind_is_refused_before_anything_is_trained(tmp_path, tiny_classes):
    (config := tmp_path / "classes.yaml").write_text(dump(tiny_classes()))
    with pytest.raises(UserError, match="mergan is for a gan, not for a classifier"):
        compare_methods(config, [], ["finetune", "mergan"], [0], tmp_path / "compare")
    assert not (tmp_path / "compare").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method={name: eft}"], "trained by finetune, whose tasks have other parts"),
        (["method={name: si}"], "si must train the first task itself"),
        (["seed=1"], "it has another seed"),
        (["sources=[{name: shapes/2, data: 'shapes:6'}]"], "its classes come from shapes/3"),
    ],
)
def test_a_classifier_refuses_a_first_task_that_is_not_its_own(tiny_classes, words, message):
    first = tiny_classes("method={name: finetune}", "sources.0.take=1", out="first")
    train_classifier(first, "test")
    with pytest.raises(UserError, match=message):
        train_classifier(tiny_classes("method={name: finetune}", *words, f"start={first.out}"), "test")


def test_separate_equals_training_each_task_alone_bit_for_bit(tiny):
    words = ("method={name: separate}",)
    both = train_gan(tiny(*words, out="both"), "test")
    alone = train_gan(tiny(*words, "tasks=[{name: checks, data: 'shapes:checks', limit: 24}]", out="alone"), "test")
    images = [run.sample("checks", 4, 0, run.generator(len(run.trained) - 1)) for run in (both, alone)]
    assert torch.equal(*images)


def test_a_recipe_beside_the_config_may_give_later_tasks_wider_groups(config, tmp_path):
    """The first task is the same function, to rounding; its file is written for the wider groups."""
    folder = config.with_suffix("")
    folder.mkdir()
    sizes = "adapters: {sizes: {'upsample.*': [4, 4]}}"
    (folder / "wide.yaml").write_text(f"extends: ../tiny.yaml\nmethod: {{name: eft, discriminator: full}}\n{sizes}\n")
    compare_methods(config, [], ["eft", "wide"], [0], tmp_path / "compare")
    narrow, wide = (GanRun(tmp_path / "compare" / f"{name}-seed0") for name in ("eft", "wide"))
    assert wide.experiment.title == "wide"
    z = torch.randn(4, wide.experiment.network.z_dim)
    drawn = [merge_task(run.generator(0), "discs")(z)[-1] for run in (narrow, wide)]
    assert torch.allclose(*drawn, atol=1e-5)
    shapes = [
        {
            key: tensor.shape[1]
            for key, tensor in task_state(run.generator(0), "discs").items()
            if "spatial.weight" in key
        }
        for run in (narrow, wide)
    ]
    assert {key for key in shapes[0] if shapes[0][key] != shapes[1][key]} == {k for k in shapes[0] if "upsample" in k}


@pytest.mark.parametrize("word", ["adapters={a: 3, b: 2}", "adapters={a: 2, b: 2, mode: parallel}"])
def test_a_first_task_with_other_adapters_is_refused(tiny, word):
    train_gan(tiny("tasks=[{name: discs, data: 'shapes:discs', limit: 24}]", out="first"), "test")
    start = tiny(out="first").out
    with pytest.raises(UserError, match="trained with other adapter sizes"):
        train_gan(tiny(f"start={start}", word), "x")


def test_unknown_methods_are_refused_before_anything_is_trained(config, tmp_path):
    (config.with_suffix("")).mkdir()
    (config.with_suffix("") / "eft-plus.yaml").write_text("extends: ../tiny.yaml\n")
    for name, hint in (("etf", "did you mean eft"), ("eft_plus", "did you mean eft-plus"), ("x", "there are: ")):
        with pytest.raises(UserError, match=f"no method or recipe '{name}'; {hint}") as caught:
            compare_methods(config, [], ["finetune", name], [0], tmp_path / "compare")
        listed = str(caught.value).partition("here are: ")[2].split(", ")
        assert set(listed) == {name for name, method in METHODS.items() if method.suits("gan")} | {"eft-plus"}
    assert not (tmp_path / "compare").exists()


def test_the_usual_methods_serve_what_is_compared():
    for kind in map(load_kind, KINDS):
        assert all(METHODS[name].suits(kind.name) for name in kind.usual_methods)


@pytest.fixture
def planned(monkeypatch) -> list:
    """What would be trained, in order."""
    experiments = []
    for kind in map(load_kind, KINDS):
        monkeypatch.setattr(kind, "train", lambda each, command: experiments.append(each))
    monkeypatch.setattr("eftgan.reports.write.write_report", lambda runs, out: runs)
    return experiments


def test_without_methods_the_usual_ones_of_a_classifier_are_compared(tmp_path, planned):
    runs = compare_methods(ROOT / "configs/classifier/shapes.yaml", [], None, [0], tmp_path)
    names = [run.name for run in runs]
    assert names == ["finetune-seed0", "ewc-seed0", "lwf-seed0", "eft-seed0", "separate-seed0"]
    assert set(names) < {Path(each.out).name for each in planned}


def test_settings_of_the_method_hold(config, tmp_path, planned):
    config.write_text(config.read_text() + "method: {name: eft, discriminator: full}\n")
    compare_methods(config, ["method.later_rate=7"], ["eft", "ewc", "eft"], [0, 0], tmp_path)
    methods = [each.method for each in planned if each.tasks[1:]]
    assert [(method.name, method.later_rate) for method in methods] == [("eft", 7), ("ewc", 7)]
    assert methods[0].discriminator == "full"
    assert {each.method.later_rate for each in planned if not each.tasks[1:]} == {1}


@pytest.mark.parametrize("words", [["--methods", "eft", "training.steps=2"], ["training.steps=2", "--methods", "eft"]])
def test_words_may_stand_before_and_after_options(config, tmp_path, planned, words):
    main(["compare", str(config), *words, "--out", str(tmp_path / "out"), "seed=3"])
    assert {Path(each.out).name for each in planned} == {"first-seed0", "eft-seed0"}
    assert {each.training.steps for each in planned} == {2}


def test_a_length_that_no_run_would_use_is_refused(config, tmp_path, planned):
    with pytest.raises(UserError, match=r"training\.epochs=3 has no effect where the config sets training\.steps"):
        plan_comparison(config, ["training.epochs=3"], ["eft"], [0], tmp_path)


@pytest.mark.parametrize("name", ["gan/shapes", "configs/gan/shapes.yaml", "cats_birds_churches_towers_32"])
def test_a_config_is_found_by_its_name_or_its_path(name, tmp_path, planned, monkeypatch):
    monkeypatch.chdir(ROOT)
    main(["compare", name, "--methods", "eft-plus", "--out", str(tmp_path)])
    assert [each.title for each in planned] == [None, "eft-plus"]


@pytest.mark.parametrize("methods", ["", ",", "eft,", " "])
def test_methods_without_a_name_are_refused(config, capsys, methods):
    with pytest.raises(SystemExit):
        main(["compare", str(config), "--methods", methods])
    assert f"error: --methods {methods!r}: give names" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["method.name=ewc", "method={name: ewc, strength: 5}", "method=null", "method=ewc"])
def test_the_methods_are_chosen_in_one_place(config, tmp_path, word):
    with pytest.raises(UserError, match="--methods says which"):
        compare_methods(config, [word], ["ewc"], [0], tmp_path)


def test_a_first_task_that_is_another_one_is_not_shared(config, tmp_path, planned, tiny):
    config.write_text(config.read_text() + "method: {name: eft, first_init: random}\n")
    compare_methods(config, [], ["eft", "finetune"], [0], tmp_path)
    assert [each.start is None for each in planned if each.tasks[1:]] == [True, False]
    train_gan(tiny("tasks=[{name: discs, data: 'shapes:discs', limit: 24}]", out="first"), "test")
    start = tiny(out="first").out
    with pytest.raises(UserError, match="with the usual settings, not with first_init=random"):
        train_gan(tiny(f"start={start}", "method={name: eft, first_init: random}"), "x")
    for state in (Path(start) / "state").iterdir():
        state.unlink()
    with pytest.raises(UserError, match="no resume state to take the first task from"):
        train_gan(tiny(f"start={start}"), "x")


def test_a_later_call_keeps_the_methods_of_earlier_ones_in_the_report(config, tmp_path):
    out = tmp_path / "compare"
    compare_methods(config, [], ["finetune"], [0], out)
    page = compare_methods(config, [], ["eft"], [0], out)[0].read_text()
    assert "Finetune" in page
    shorter = compare_methods(config, ["tasks.1.name=squares"], ["ewc"], [0], out)[0].read_text()
    assert "Finetune" not in shorter  # another sequence


MASKS = {
    "packnet": {"prune": 0.5},
    "hat": {},
    "tfm": {"tasks": 2},
    "piggyback": {},
    "supsup": {"density": 0.5},
    "ccll": {},
    "hnet": {},
}


def small(method: dict, out: Path, **keys) -> ClassifierExperiment:
    data = {
        "out": str(out), "limit": 12, "sources": [{"name": "shapes/2", "data": "shapes:4"}],
        "network": {"name": "resnet8", "size": 16}, "training": {"batch": 4, "first": {"epochs": 1}}, "method": method,
    }  # fmt: skip
    return build(ClassifierExperiment, {**data, **keys}, "test")


def first_of(method: dict, out: Path) -> Path:
    """A run of the first task alone."""
    train_classifier(small(method, out, sources=[{"name": "shapes/2", "data": "shapes:4", "take": 1}]), "test")
    return out


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "packnet")) for name in MASKS])
def test_a_first_task_from_the_same_method_is_as_if_trained_here_and_runs_classify(tmp_path, name):
    method = {"name": name, **MASKS[name]}
    alone = train_classifier(small(method, tmp_path / "alone"), "test")
    start = first_of(method, tmp_path / "first")
    other = train_classifier(small(method, tmp_path / "other", start=str(start)), "test")
    for index, task in enumerate(alone.trained):
        mine, theirs = (run.folder.task_file(index, task) for run in (alone, other))
        assert file_digest(mine) == file_digest(theirs), task
    image = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8)
    inferred, ranked = alone.classify(image)
    assert inferred in alone.trained
    assert sum(share for _, share in ranked) == pytest.approx(1)
    network, x = alone.classifier(1), alone.experiment.pixels(image[None])
    for task, together in zip(alone.trained, Together(network, alone.trained)(x), strict=True):
        assert torch.allclose(merge_task(network, task)(x), together, atol=1e-4)
        assert alone.classify(image, task)[0] == task


@pytest.mark.parametrize(
    ("name", "its", "mine", "why"),
    [
        ("packnet", {"prune": 0.5}, {"prune": 0.6}, "prune=0.5"),
        ("hat", {"smax": 100.0}, {}, "smax=100.0"),
        ("tfm", {"tasks": 1}, {"tasks": 2}, "tasks=1"),
        ("supsup", {"density": 0.5}, {"density": 0.4}, "density=0.5"),
        ("supsup", {"transfer": True}, {"transfer": True}, "must train the first task itself"),
        ("hnet", {"hidden": 16}, {}, "hidden=16"),
        ("ewc-sdc", {}, {}, "start from a run of finetune"),
    ],
)
def test_a_first_task_of_other_settings_is_refused(tmp_path, name, its, mine, why):
    start = first_of({"name": name, **its}, tmp_path / "first")
    with pytest.raises(UserError, match=why):
        train_classifier(small({"name": name, **mine}, tmp_path / "other", start=str(start)), "test")
    assert not (tmp_path / "other" / "tasks").exists()
