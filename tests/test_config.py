"""Configs: every mistake is named by its path, with a remedy."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import Doc

from eftgan.config import Choice, Count, apply_override, build, describe, dump, load, parse_yaml, plain, read_yaml
from eftgan.errors import UserError


@dataclass(frozen=True)
class Circle:
    name: Literal["circle"] = "circle"
    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    name: Literal["square"] = "square"
    side: float = 1.0


SHAPES: dict[str, type] = {"circle": Circle, "square": Square}


@dataclass(frozen=True)
class Inner:
    steps: Annotated[Count, Doc("how many")] = 5
    rate: float = 0.1
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outer:
    inner: Annotated[Inner, Doc("the inside")] = field(default_factory=Inner)
    shape: Annotated[Circle | Square, Choice(SHAPES, "circle")] = field(default_factory=Circle)
    items: list[Inner] = field(default_factory=list)


def outer(data: dict, words: list[str]) -> Outer:
    for word in words:
        apply_override(data, word)
    return build(Outer, data)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inner.stps=3"], "unknown key inner.stps; did you mean inner.steps?"),
        (["iner.steps=3"], "unknown key iner; did you mean inner?"),
        (["inner.steps=0"], "inner.steps: greater than 0, not 0"),
        (["inner.steps=many"], "inner.steps: a valid integer"),
        (["inner.steps=true"], "inner.steps"),
        (["inner.steps=1.5"], "inner.steps"),
        (["inner=7"], "inner"),
        (["shape={name: triangle}"], "shape.name is 'triangle'; choose from: circle, square"),
        (["shape={name: squar}"], "did you mean square?"),
        (
            ["shape.side=2"],
            "unknown key shape.side; there are: name, radius (of another kind?",
        ),
        (["shape.name=circle", "shape.side=2"], "(of another kind? shape={name: circle} begins anew)"),
        (["items=[{stepps: 1}]"], "unknown key items.0.stepps"),
        (["items.0.steps=1"], "not a place in a list"),
        (["inner.steps.deep=1"], "steps"),
        (["inner"], "expected key=value"),
        (["=3"], "expected key=value"),
        (["inner.steps=[1"], "not plain YAML"),
        (["inner.names=!!python/object/apply:os.system [ls]"], "not plain YAML"),
    ],
)
def test_a_mistake_is_refused_with_its_path(words, message):
    with pytest.raises(UserError) as caught:
        outer({"items": []}, words)
    assert message in str(caught.value)


def test_overrides_set_append_and_switch_kinds():
    data = {}
    for word in [
        "inner.rate=1e-4",
        "inner.names+=a",
        "inner.names+=[b, c]",
        "shape={name: square}",
        "shape.side=2",
    ]:
        apply_override(data, word)
    made = build(Outer, data)
    assert made.inner.rate == 1e-4
    assert made.inner.names == ["a", "b", "c"]
    assert made.shape == Square(side=2.0)


def test_a_file_extends_another_and_lists_are_replaced(tmp_path):
    (tmp_path / "base.yaml").write_text("inner: {steps: 3, names: [a]}\nshape: {name: circle, radius: 2}\n")
    (tmp_path / "child.yaml").write_text("extends: base.yaml\ninner: {names: [b]}\nshape: {name: square}\n")
    made = load(Outer, tmp_path / "child.yaml", ["inner.rate=0.5"])
    assert made == Outer(Inner(3, 0.5, ["b"]), Square())


def test_files_that_are_no_configs_are_refused(tmp_path):
    for name, text, message in [
        ("list.yaml", "- 1", "mapping"),
        ("loop.yaml", "extends: loop.yaml", "extends itself"),
        ("numbers.yaml", "1: 2", "mapping"),
        ("tag.yaml", "a: !!python/name:os.system", "not plain YAML"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            read_yaml(tmp_path / name)
        assert name in str(caught.value)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"binary\.yaml"):
        read_yaml(tmp_path / "binary.yaml")
    with pytest.raises(UserError, match="no such config file"):
        read_yaml(tmp_path / "missing.yaml")


def test_what_is_dumped_reads_back_the_same(tmp_path):
    made = Outer(Inner(7, 1e-7, ["x: y", "#"]), Square(side=3.0), [Inner(2)])
    (tmp_path / "c.yaml").write_text(dump(made))
    assert load(Outer, tmp_path / "c.yaml") == made


def test_every_key_is_described():
    keys = {path: (value, doc) for path, value, doc in describe(Outer)}
    assert keys["inner.steps"] == ("int = 5", "how many")
    assert "shape[square].side" in keys
    assert keys["shape"] == ("circle | square = circle", "")
    assert set(keys) >= {f"inner.{f.name}" for f in dataclasses.fields(Inner)}


@given(st.text(max_size=60))
def test_any_override_word_is_taken_or_refused_politely(word):
    data: dict = {}
    try:
        apply_override(data, word)
        build(Outer, data)
    except UserError:
        pass


@given(st.text(max_size=80))
def test_any_text_is_yaml_or_refused_politely(text):
    try:
        parse_yaml(text, "here")
    except UserError as error:
        assert str(error).startswith("here")  # noqa: PT017


CONFIGS = Path(__file__).resolve().parent.parent / "configs"
GAN_CONFIGS = sorted((CONFIGS / "gan").rglob("*.yaml"))
RECIPES = sorted(CONFIGS.glob("*/*/*.yaml"))
NARROW = ["network.ngf=4", "network.ndf=4", "adapters.a=2", "adapters.b=2"]  # the widths cost most of the time


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIGS))


def test_the_recipes_for_a_cpu_at_64_pixels_grow_as_they_say_and_take_steps_from_the_command_line():
    from eftgan.commands.growth import gan_growth
    from eftgan.gan.experiment import GanExperiment

    path = CONFIGS / "gan/cats_birds_churches_towers_64_cpu.yaml"
    recipes = path.with_suffix("")
    for recipe, whole, percent in (
        (path, False, 4.11),
        (recipes / "eft-plus.yaml", True, 3.88),
        (recipes / "fastgan-eft-plus.yaml", True, 4.13),
    ):
        experiment = load(GanExperiment, recipe, ["training.steps=10"])
        experiment.check_given(["training.steps=10"])
        assert experiment.network.sizes == [64]
        counted = gan_growth(experiment.network, experiment.adapters.config(), whole=whole)
        assert 100 * counted.parameter_growth == pytest.approx(percent, abs=0.005)
    with pytest.raises(UserError, match=r"training\.steps=10 has no effect where the config sets tasks\.0\.epochs"):
        load(GanExperiment, CONFIGS / "gan/cats_birds_churches_towers_64.yaml", ["training.steps=10"]).check_given(
            ["training.steps=10"]
        )


@pytest.mark.parametrize("path", GAN_CONFIGS, ids=name_of)
def test_every_gan_config_is_valid_and_builds(path, tmp_path):
    import torch

    from eftgan.gan.experiment import GanExperiment
    from eftgan.gan.networks import build_networks
    from eftgan.methods import Probe

    if path in RECIPES:
        experiment = load(GanExperiment, path)
        assert (experiment.title or experiment.method.name) == path.stem
    small = load(GanExperiment, path, NARROW)
    if small.base_weights:  # of others: here, some of the same layers
        torch.save(small.network.generator().state_dict(), tmp_path / "netG.pth")
        small = dataclasses.replace(small, base_weights=str(tmp_path / "netG.pth"))
    networks = build_networks(small)
    for task in small.task_names[:2]:
        small.method.grow(networks, task)
        assert all(small.method.trainable(networks, task).values())
        if small.method.chained:  # a task must leave something to the next
            small.method.end_task(networks, task, Probe(losses=lambda role: []))


def test_every_config_is_valid_and_has_its_own_run_folder():
    from eftgan.kinds import KINDS, load_kind

    outs = {}
    for kind in KINDS:
        for path in sorted((CONFIGS / kind).rglob("*.yaml")):
            outs[name_of(path)] = load(load_kind(kind).experiment_type, path).out
            named = "-".join(path.relative_to(CONFIGS / kind).with_suffix("").parts)
            demo = name_of(path) == "classifier/shapes.yaml"
            assert outs[name_of(path)] == ("runs/shapes-classes" if demo else f"runs/{named}")
    assert len(outs) > 50
    assert len(set(outs.values())) == len(outs)


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_every_recipe_belongs_to_a_config_and_sets_something(path):
    """A file that only names a method would say nothing that `--methods NAME` and `method=NAME` do not."""
    data = parse_yaml(path.read_text(), str(path))
    extended = (path.parent / data.pop("extends")).resolve()
    assert extended == path.parent.with_suffix(".yaml") or extended in RECIPES
    assert extended.is_file()
    method = data.pop("method", {})
    assert {*data, *method} - {"out", "title", "name"}


def test_a_name_alone_stands_for_a_choice_and_whoever_registers_a_member_is_heard(monkeypatch):
    assert outer({}, ["shape=square"]) == Outer(shape=Square())
    assert outer({}, ["shape=square", "shape.side=2"]) == Outer(shape=Square(side=2.0))

    @dataclass(frozen=True)
    class Ring:
        name: Literal["ring"] = "ring"
        width: float = 0.5

    monkeypatch.setitem(SHAPES, "ring", Ring)
    made = outer({}, ["shape=ring"])
    assert made.shape == Ring()
    assert load(Outer, None, ["shape={name: ring, width: 2}"]).shape == Ring(width=2.0)
    assert plain(made)["shape"] == {"name": "ring", "width": 0.5}
