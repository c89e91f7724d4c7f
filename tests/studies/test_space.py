"""What a search may choose, as people type it."""

import pytest

from eftgan.errors import UserError
from eftgan.studies.space import Axis, combinations, parse_words


def test_several_values_are_choices_a_range_is_a_range_and_one_value_holds_for_all():
    words = ["method.later_rate=1,2.5", "method.init=previous, identity", "training.steps=10..99", "seed=3",
             "training.learning_rate=1e-4..1e-2:log", "training={batch: 4, steps: 2}", "log_with+=a,b"]  # fmt: skip
    axes, fixed = parse_words(words)
    assert axes == [
        Axis("method.later_rate", ("1", "2.5")),
        Axis("method.init", ('"previous"', '"identity"')),
        Axis("training.steps", low=10, high=99, whole=True),
        Axis("training.learning_rate", low=1e-4, high=1e-2, log=True),
    ]
    assert fixed == ["seed=3", "training={batch: 4, steps: 2}", "log_with+=a,b"]


def test_lists_and_mappings_can_be_choices_too():
    (axis,), fixed = parse_words(["training.diffaugment=[], [color, cutout]"])
    assert [axis.override(choice) for choice in axis.choices] == [
        "training.diffaugment=[]",
        'training.diffaugment=["color", "cutout"]',
    ]
    assert fixed == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a=2..1"], "LOW < HIGH"),
        (["a=0..1:log"], "both above 0"),
        (["a=1,1"], "given twice"),
        (["a=1,2", "a=3,4"], "a: given twice"),
        (["a={,"], "not plain YAML"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_word(words, message):
    with pytest.raises(UserError, match=message):
        parse_words(words)


def test_combinations_of_choices_are_counted_and_those_of_a_range_are_not():
    axes, _ = parse_words(["a=1,2", "b=x,y,z"])
    found = combinations(axes)
    assert found is not None
    assert [(each["a"], each["b"]) for each in found][:2] == [("1", '"x"'), ("1", '"y"')]
    assert len(found) == 6
    assert combinations(parse_words(["a=1,2", "b=0.1..1"])[0]) is None
