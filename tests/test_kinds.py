"""The kinds of experiments keep to themselves, and say so."""

import pytest

from eftgan.classifier.run import ClassifierRun
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.kinds import KINDS, kind_of_config, load_kind, open_run
from eftgan.methods import METHODS


def test_every_kind_loads_and_answers_to_its_name():
    for name in KINDS:
        kind = load_kind(name)
        assert kind.name == name == kind.experiment_type.kind
        assert kind.run_type.experiment_type is kind.experiment_type


def test_a_config_tells_its_kind_by_its_sequence():
    assert kind_of_config({"tasks": []}, "x.yaml").name == "gan"
    assert kind_of_config({"sources": []}, "x.yaml").name == "classifier"
    with pytest.raises(
        UserError, match=r"x\.yaml: no tasks; a config has tasks: \(a gan\) or sources: \(a classifier\)"
    ):
        kind_of_config({"steps": 3}, "x.yaml")


def test_a_run_of_the_other_kind_is_refused_with_the_command_that_it_is_for(tiny):
    run = train_gan(tiny(), "test")
    assert isinstance(open_run(run.folder.path), GanRun)
    with pytest.raises(UserError, match=r"run is a gan run; use: eftgan sample .*run"):
        open_run(run.folder.path, "classifier")
    with pytest.raises(UserError, match="is a gan run, not a classifier run"):
        ClassifierRun(run.folder.path)
    run.folder.facts.unlink()  # a folder of config, shared weights and task files alone
    assert isinstance(open_run(run.folder.path, "gan"), GanRun)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("method={name: eft, margin: {delta: 2}}", "method.margin has no effect on a gan: it is for a classifier"),
        ("method={name: lwf}", "method.name: lwf is for a classifier, not for a gan"),
    ],
)
def test_a_gan_refuses_what_is_for_a_classifier(tiny, word, message):
    with pytest.raises(UserError, match=message):
        tiny(word)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "method={name: eft, discriminator: full}",
            "method.discriminator has no effect on a classifier: it is for a gan",
        ),
        ("method={name: mergan}", "method.name: mergan is for a gan, not for a classifier"),
    ],
)
def test_a_classifier_refuses_what_is_for_a_gan(tiny_classes, word, message):
    with pytest.raises(UserError, match=message):
        tiny_classes(word)


def test_every_method_has_a_title_for_reports_and_a_name_of_its_own():
    assert all(METHODS[name]().name == name for name in METHODS)
    titles = [method.title for method in METHODS.values()]
    assert len(set(titles)) == len(titles)
