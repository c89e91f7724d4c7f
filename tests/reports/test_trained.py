"""The report on tiny runs that were really trained."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from eftgan.commands import main

from ..conftest import TINY, TINY_CLASSES
from .page import Page, report

KINDS = {
    "gan": [*TINY, "training.steps=1", "evaluation={features: random, samples: 4}"],
    "classifier": TINY_CLASSES,
}


@pytest.fixture(scope="module", params=KINDS)
def compared(request, tmp_path_factory) -> dict[str, Path]:
    """Runs of a few methods, by method."""
    words = KINDS[request.param]
    folder, methods = tmp_path_factory.mktemp("compared"), ["finetune", "eft", "separate"]
    (folder / "empty.yaml").write_text(words[0].replace("=", ": ", 1))
    main(["compare", str(folder / "empty.yaml"), *words[1:], "--methods", ",".join(methods), "--out", str(folder)])
    return {method: folder / f"{method}-seed0" for method in methods}


def growth_column(page: Page) -> dict[str, str]:
    columns, *rows = page.table("Results at a glance")
    return {row[0]: row[columns.index("Growth per task")] for row in rows}


def test_a_task_of_separate_networks_adds_a_whole_one(compared, tmp_path):
    page = report(list(compared.values()), tmp_path)
    growth = growth_column(page)
    assert growth.pop("Separate (bound)") == "100.00 %"
    assert float(growth.pop("EFT").removesuffix(" %")) > 1
    assert set(growth.values()) == {"0.00 %"}
    assert "With Separate (bound) every task has a whole network of its own." in page.text


def test_the_curve_of_separate_networks_lies_on_its_reference(compared, tmp_path):
    page = report(list(compared.values()), tmp_path)
    label = next(svg["aria-label"] for svg in page.svgs if svg["aria-label"].startswith("Parameters as a multiple"))
    assert "Separate (bound) 1.00, 2.00" in label
    assert "Finetune 1.00, 1.0" in label  # a classifier's heads are a per cent or so


def test_provenance_is_on_the_page(compared, tmp_path, capsys):
    for method, folder in compared.items():
        page = report([folder], tmp_path)
        assert "eftgan compare" in page.text
        assert f"--methods {','.join(compared)} --out {folder.parent}" in page.text
        assert f"torch {version('torch')}" in page.text
        assert (folder / "config.yaml").read_text() in page.text
        main(["info", str(folder)])
        digests = re.findall(r"[0-9a-f]{64}", capsys.readouterr().out)
        assert len(digests) == len(list(folder.glob("tasks/*"))) + (method in ("eft", "separate"))  # the shared weights
        assert re.findall(r"([0-9a-f]{64})  \S+\.safetensors", page.text) == digests
