"""What the README shows works as it stands there."""

import re
from pathlib import Path

import torch

README = Path(__file__).parents[1] / "README.md"


def test_the_library_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict = {}
    exec(example, names)  # the project's own text
    assert [names[each].shape for each in ("for_cats", "for_birds", "logits")] == [(8, 10), (8, 10), (3, 10)]
    assert (tmp_path / "birds.safetensors").stat().st_size < 0.06 * sum(
        tensor.nbytes for tensor in names["plain"].state_dict().values()
    )
    assert not any("Bank" in type(module).__name__ for module in names["plain"].modules())
    assert torch.isfinite(names["logits"]).all()
