"""Imports go one way, so that any folder can be read, and used, without those above it.

leaves <- adapters, models, data <- methods (adapters only) <- training, evaluation (not each other) <- gan, classifier
(not each other) <- kinds <- studies, demo <- commands and entries; reports read files, and what metrics say of
themselves; hub shares files of runs, with words and tables of reports.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEAVES = {"config", "scores", "errors", "files", "names", "progress", "runfolder", "tensors"}
LIBRARY = LEAVES | {"adapters", "models", "data", "methods"}
SUBPARTS = {"evaluation.metrics"}  # folders inside a part with rules of their own
PARTS = LIBRARY | {"training", "evaluation", "reports", "hub", "export"} | SUBPARTS
KINDS = {"gan", "classifier"}
STUDIES = "studies"
TOP = {"kinds", "commands", "__init__", "__main__"}  # with the programs beside the package: may import anything

# What each part of the package may import of the package, beside itself.
MAY_IMPORT: dict[str, set[str]] = {
    **{leaf: {"errors", "files", "names"} for leaf in LEAVES},
    "adapters": LEAVES,
    "models": LEAVES,
    "data": LEAVES,
    "methods": LEAVES | {"adapters"},
    "training": LIBRARY | {"hub"},
    "evaluation": LIBRARY | {"evaluation.metrics"},
    "evaluation.metrics": LEAVES - {"tensors"},
    "reports": LEAVES - {"tensors"} | {"evaluation.metrics"},
    "hub": LEAVES - {"tensors"} | {"reports"},
    "export": LEAVES,
    "data_prep": LEAVES | {"data"},
    **{kind: PARTS for kind in KINDS},
    STUDIES: PARTS | {"kinds"},  # whatever kind it is: they know none by name
    "demo": PARTS | KINDS | {"kinds"},
}
# What a part may import besides, where it does no harm to those who only read it: inside functions and for type checks.
MAY_IMPORT_LATE: dict[str, set[str]] = {
    "evaluation.metrics": {"evaluation", "torch"},
    STUDIES: {"commands"},  # a worker is a command, started again
}
# Where a library may be named: parts of the package, "entries" for the programs beside it.
ONLY_IN: dict[str, set[str]] = {
    "accelerate": {"training", "entries"},
    "lmdb": {"data", "data_prep"},
    "optuna": {STUDIES},
    "submitit": {STUDIES},
    "huggingface_hub": {"hub"},
    "onnx": {"export"},
    "onnxscript": {"export"},
    "gradio": {"demo"},
}
NO_TORCH = LEAVES - {"tensors"} | {"reports", "hub", "evaluation.metrics"}
TORCH = {"torch", "torchvision"}


def part_of(path: Path) -> str:
    """The part that a file belongs to: adapters, cli, data_prep, entries, ..."""
    parts = path.with_suffix("").parts
    if parts[0] in ("data_prep", "eftgan") and len(parts) > 1:
        return "data_prep" if parts[0] == "data_prep" else part_named(parts[1:])
    return "entries"


def part_named(names: Sequence[str]) -> str:
    """The part of the package that a dotted name, split and without `eftgan`, belongs to."""
    inner = ".".join(names[:2])
    return inner if inner in SUBPARTS else names[0]


def imported(tree: ast.AST, package: str) -> Iterator[tuple[str, bool]]:
    """Dotted names that a file imports, relative ones made whole, and whether that is late."""
    late = {inner for node in ast.walk(tree) if is_late(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from eftgan import cli` names a part; `from eftgan.adapters import add_task` names it already.
                whole = f"{base}.{alias.name}"
                is_part = base == "eftgan" or whole.removeprefix("eftgan.") in SUBPARTS
                yield whole if is_part else base, node in late


def is_late(node: ast.AST) -> bool:
    """Whether what stands inside is not run when the file is imported."""
    for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def violations(path: Path, source: str) -> list[str]:
    """What a file (its path from the root) imports against the rules."""
    part, found = part_of(path), []
    for name, late in imported(ast.parse(source), ".".join(path.parts[:-1])):
        top, *rest = name.split(".")
        target = part_named(rest) if rest else ""
        besides = MAY_IMPORT_LATE.get(part, set()) if late else set()
        if top == "data_prep":
            allowed = part not in MAY_IMPORT or part == "data_prep"
        elif top == "eftgan":
            known = target in MAY_IMPORT or target in TOP  # else a name out of eftgan/__init__.py
            allowed = part not in MAY_IMPORT or not known or target in MAY_IMPORT[part] | {part} | besides
        elif top in TORCH:
            allowed = part not in NO_TORCH or "torch" in besides
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


def test_the_package_has_at_most_nine_loose_modules():
    loose = [path.stem for path in (ROOT / "eftgan").glob("*.py") if not path.stem.startswith("__")]
    assert len(loose) <= 9, loose


def module_graph() -> dict[str, set[str]]:
    """Every module of the package -> the modules of it that are imported when it is."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in sources()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        tree = ast.parse((ROOT / path).read_text())
        late = {inner for node in ast.walk(tree) if is_late(node) for inner in ast.walk(node)}
        targets = set()
        for node in ast.walk(tree):
            if node in late:
                continue
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= (inner & names.keys()) or {node.module}
        graph[name] = (targets & names.keys()) - {name}
    return graph


def test_no_module_imports_itself_by_way_of_others():
    graph, done = module_graph(), set()
    assert len(graph) > 100

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way, name))
        if name not in done:
            for target in graph[name]:
                visit(target, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("eftgan/adapters/bank.py", "from eftgan.models import resnet18"),
        ("eftgan/adapters/bank.py", "from ..models import resnet18"),
        ("eftgan/adapters/bank.py", "from eftgan import commands"),
        ("eftgan/models/vgg.py", "import eftgan.adapters.bank"),
        ("eftgan/methods/ewc.py", "def f():\n    from eftgan.training import trainer"),
        ("eftgan/methods/ewc.py", "from eftgan.data import lmdb"),
        ("eftgan/training/trainer.py", "from eftgan.evaluation.features import Extractor"),
        ("eftgan/evaluation/features.py", "import eftgan.training"),
        ("eftgan/evaluation/features.py", "import accelerate"),
        ("eftgan/gan/experiment.py", "from accelerate import Accelerator"),
        ("eftgan/gan/experiment.py", "from eftgan.commands import main"),
        ("eftgan/gan/experiment.py", "from eftgan.classifier.experiment import Schedule"),
        ("eftgan/classifier/run.py", "from eftgan import gan"),
        ("eftgan/training/kind.py", "from eftgan.kinds import KINDS"),
        ("eftgan/reports/html.py", "import torch"),
        ("eftgan/reports/html.py", "from eftgan.evaluation import growth"),
        ("eftgan/reports/html.py", "from eftgan.tensors import read_tensors"),
        ("eftgan/reports/html.py", "from eftgan.evaluation.statistics import FeatureStatistics"),
        ("eftgan/reports/html.py", "def f():\n    import torch"),
        ("eftgan/evaluation/metrics/fid.py", "import torch"),
        ("eftgan/evaluation/metrics/fid.py", "from eftgan.evaluation.statistics import FeatureStatistics"),
        ("eftgan/evaluation/metrics/fid.py", "def f():\n    from eftgan.data import lmdb"),
        ("eftgan/training/trainer.py", "import lmdb"),
        ("eftgan/commands/demo.py", "import gradio"),
        ("eftgan/gan/run.py", "from eftgan.demo import studio"),
        ("eftgan/scores.py", "import torch"),
        ("eftgan/hub/card.py", "import torch"),
        ("eftgan/gan/run.py", "import huggingface_hub"),
        ("eftgan/files.py", "from eftgan.adapters import add_task"),
        ("data_prep/cats.py", "from eftgan.training import trainer"),
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
        ("eftgan/training/trainer.py", "import accelerate\nfrom eftgan import __version__"),
        ("eftgan/data/lmdb.py", "import lmdb"),
        ("data_prep/cats.py", "from eftgan.data.lmdb import write"),
        ("train_gan.py", "from accelerate import Accelerator\nfrom eftgan.gan.experiment import GanExperiment"),
        ("eftgan/reports/html.py", "from eftgan.evaluation.metrics import METRICS"),
        ("eftgan/reports/html.py", "from eftgan.evaluation import metrics"),
        ("eftgan/evaluation/metrics/fid.py", "def f():\n    import torch"),
        (
            "eftgan/evaluation/metrics/fid.py",
            "if TYPE_CHECKING:\n    from eftgan.evaluation.statistics import FeatureStatistics",
        ),
        ("eftgan/evaluation/folder_distance.py", "from eftgan.evaluation.metrics import METRICS"),
        ("eftgan/gan/scorer.py", "from eftgan.evaluation.metrics import METRICS"),
        (
            "eftgan/commands/sample.py",
            "from eftgan.gan.experiment import GanExperiment\nfrom eftgan.reports import html",
        ),
    ],
)
def test_an_import_within_the_rules_passes(path, source):
    assert violations(Path(path), source) == []
