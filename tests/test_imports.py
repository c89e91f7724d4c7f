"""Imports go one way, so that any folder can be read, and used, without those above it.

leaves <- adapters, models, data <- methods (adapters only) <- training, evaluation (not each other) <- experiments
<- runs <- scoring, export <- cli and entries; reports read files only.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEAVES = {"config", "scores", "errors", "files", "names", "progress", "runfolder", "tensors"}
LIBRARY = LEAVES | {"adapters", "models", "data", "methods"}
PARTS = LIBRARY | {"training", "evaluation", "reports"}
# The modules above the parts: each may import those of the rows before it.
ABOVE = [{"experiment"}, {"classifier_experiment"}, {"runs", "classifier_runs"}, {"scoring", "export"}]
TOP = {"cli", "compare", "entry", "train", "__init__"}  # with the programs beside the package: may import anything

# What each part of the package may import of the package, beside itself.
MAY_IMPORT: dict[str, set[str]] = {
    **{leaf: {"errors", "files", "names"} for leaf in LEAVES},
    "adapters": LEAVES,
    "models": LEAVES,
    "data": LEAVES,
    "methods": LEAVES | {"adapters"},
    "training": LIBRARY,
    "evaluation": LIBRARY,
    "reports": LEAVES - {"tensors"},
    "data_prep": LEAVES | {"data"},
    **{module: PARTS.union(*ABOVE[:row]) for row, modules in enumerate(ABOVE) for module in modules},
}
# Where a library may be named: parts of the package, "entries" for the programs beside it.
ONLY_IN: dict[str, set[str]] = {"accelerate": {"training", "train", "entries"}, "lmdb": {"data", "data_prep"}}
NO_TORCH = LEAVES - {"tensors"} | {"reports"}
TORCH = {"torch", "torchvision"}


def part_of(path: Path) -> str:
    """The part that a file belongs to: adapters, cli, data_prep, entries, ..."""
    parts = path.with_suffix("").parts
    if parts[0] in ("data_prep", "eftgan") and len(parts) > 1:
        return "data_prep" if parts[0] == "data_prep" else parts[1]
    return "entries"


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Dotted names that a file imports, relative ones made whole; imports inside functions count too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from eftgan import cli` names a part; `from eftgan.adapters import add_task` names it already.
            yield from (f"{base}.{alias.name}" if base == "eftgan" else base for alias in node.names)


def violations(path: Path, source: str) -> list[str]:
    """What a file (its path from the root) imports against the rules."""
    part, found = part_of(path), []
    for name in imported(ast.parse(source), ".".join(path.parts[:-1])):
        top, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if top == "data_prep":
            allowed = part not in MAY_IMPORT or part == "data_prep"
        elif top == "eftgan":
            known = target in MAY_IMPORT or target in TOP  # else a name out of eftgan/__init__.py
            allowed = part not in MAY_IMPORT or not known or target in MAY_IMPORT[part] | {part}
        elif top in TORCH:
            allowed = part not in NO_TORCH
        else:
            allowed = part in ONLY_IN.get(top, {part})
        if not allowed:
            found.append(f"{path} imports {name}")
    return found


def sources() -> list[Path]:
    folders = [*(ROOT / "eftgan").rglob("*.py"), *(ROOT / "data_prep").rglob("*.py"), *ROOT.glob("*.py")]
    return sorted(path.relative_to(ROOT) for path in folders)


def test_imports_go_one_way():
    assert [found for path in sources() for found in violations(path, (ROOT / path).read_text())] == []


def test_every_part_of_the_package_has_a_rule():
    parts = {part_of(path) for path in sources() if path.parts[0] == "eftgan"}
    assert parts <= set(MAY_IMPORT) | TOP


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("eftgan/adapters/bank.py", "from eftgan.models import resnet18"),
        ("eftgan/adapters/bank.py", "from ..models import resnet18"),
        ("eftgan/adapters/bank.py", "from eftgan import cli"),
        ("eftgan/models/vgg.py", "import eftgan.adapters.bank"),
        ("eftgan/methods/ewc.py", "def f():\n    from eftgan.training import gan"),
        ("eftgan/methods/ewc.py", "from eftgan.data import lmdb"),
        ("eftgan/training/gan.py", "from eftgan.evaluation.fid import fid"),
        ("eftgan/evaluation/fid.py", "import eftgan.training"),
        ("eftgan/evaluation/fid.py", "import accelerate"),
        ("eftgan/experiment.py", "from accelerate import Accelerator"),
        ("eftgan/experiment.py", "from eftgan.cli import main"),
        ("eftgan/experiment.py", "from eftgan.gan.run import GanRun"),
        ("eftgan/runs.py", "from eftgan import scoring"),
        ("eftgan/reports/html.py", "import torch"),
        ("eftgan/reports/html.py", "from eftgan.evaluation import growth"),
        ("eftgan/reports/html.py", "from eftgan.tensors import read_tensors"),
        ("eftgan/training/gan.py", "import lmdb"),
        ("eftgan/scores.py", "import torch"),
        ("eftgan/files.py", "from eftgan.adapters import add_task"),
        ("data_prep/cats.py", "from eftgan.training import gan"),
        ("eftgan/data/lmdb.py", "import data_prep.writer"),
    ],
)
def test_an_import_against_the_rules_is_found(path, source):
    assert len(violations(Path(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "eftgan/adapters/merge.py",
            "from eftgan.adapters.bank import TaskBank\nfrom eftgan.errors import UserError",
        ),
        ("eftgan/methods/eft.py", "from eftgan.adapters import add_task"),
        ("eftgan/training/gan.py", "import accelerate\nfrom eftgan import __version__"),
        ("eftgan/data/lmdb.py", "import lmdb"),
        ("data_prep/cats.py", "from eftgan.data.lmdb import write"),
        ("train_gan.py", "from accelerate import Accelerator\nfrom eftgan.gan.experiment import build"),
        ("eftgan/cli.py", "from eftgan.gan.experiment import build\nfrom eftgan.reports import html"),
    ],
)
def test_an_import_within_the_rules_passes(path, source):
    assert violations(Path(path), source) == []
