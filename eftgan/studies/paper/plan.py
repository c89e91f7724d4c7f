"""From a table and settings to runs: which there are, which can be trained, and how far they are."""

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eftgan.config import build, read_yaml
from eftgan.errors import UserError
from eftgan.files import exclusive, write_json
from eftgan.kinds import find_config, kind_of_config
from eftgan.methods import METHODS
from eftgan.names import counted
from eftgan.runfolder import DIVERGED, RunFolder
from eftgan.studies.comparison import Comparison, plan_comparison, recipe_data, recipe_file, with_overrides
from eftgan.studies.paper.protocols import Settings, entries_with_data, method_of, set_name
from eftgan.studies.paper.tables import Paper, PaperTable, Row
from eftgan.studies.sharing import AnyKind
from eftgan.training.experiment import Experiment

RECORD = "plan.json"  # beside the runs: with which settings, and for which tables
BUILT_IN = ("shapes", "torchvision:")  # how data begins that is no place


@dataclass(frozen=True)
class Obstacle:
    """Why a row cannot be trained."""

    brief: str  # for a cell
    remedy: str


@dataclass(frozen=True)
class Plan:
    """One table with one set of settings."""

    paper: Paper
    table: PaperTable
    settings: Settings
    out: Path

    @functools.cached_property
    def config(self) -> Path:
        name = self.paper.form(self.table).config if self.settings.small else None
        return find_config(name or self.table.config)

    @functools.cached_property
    def words(self) -> list[str]:
        return [*(self.paper.form(self.table).words if self.settings.small else ()), *self.settings.words]

    @functools.cached_property
    def kind(self) -> AnyKind:
        return kind_of_config(read_yaml(self.config), str(self.config))

    @property
    def folder(self) -> Path:
        """Of the runs; tables of one config share them."""
        return self.out / self.config.stem / self.settings.folder

    def changed(self, kind: AnyKind, data: dict[str, Any]) -> dict[str, Any]:
        """A config's mapping as the settings have it."""
        if self.settings.small and (data.get("training") or {}).get("optimizer") != "adam":
            data = with_overrides(data, self.paper.form(self.table).with_sgd)
        return self.settings.change(kind, data, self.paper.protocol(self.settings.protocol))

    def data(self, recipe: str) -> dict[str, Any]:
        """What a recipe's runs are made from."""
        return self.changed(self.kind, recipe_data(self.kind, self.config, self.words, recipe))

    @functools.cached_property
    def obstacles(self) -> dict[str, Obstacle | None]:
        """By recipe, what stands in the way of training it."""
        return {row.recipe: self._obstacle(row) for row in self.table.rows}

    def _obstacle(self, row: Row) -> Obstacle | None:
        if not recipe_file(self.config, row.recipe).is_file() and row.recipe not in METHODS:
            if row.recipe not in self.paper.awaited:
                raise UserError(f"{self.table.name}, {row.name}: no method or recipe {row.recipe!r}")
            return Obstacle("not here yet", f"{row.recipe} is not implemented yet")
        data = self.data(row.recipe)
        if method_of(data) not in METHODS:
            return Obstacle("not here yet", f"{method_of(data)} is not implemented yet")
        for place in (str(entry["data"]) for entry in entries_with_data(self.kind, data)):
            if not place.startswith(BUILT_IN) and not Path(place).expanduser().exists():
                name = set_name(place)
                how = self.paper.data.get(name, "check the path")
                return Obstacle(f"no {place}", f"no {place}: {how}; or --data {name}=PATH")
        return None

    def trainable(self, names: Sequence[str] | None = None) -> list[str]:
        """The recipes that can be trained, or those that were named; refused where there is none."""
        recipes = list(self.obstacles)
        for name in names or ():
            if name not in recipes:
                raise UserError(f"--rows {name}: {self.table.name} has no such row; there are: {', '.join(recipes)}")
        free = [recipe for recipe in names or recipes if self.obstacles[recipe] is None]
        stopped = [found.remedy for recipe in names or recipes if (found := self.obstacles[recipe])]
        if not free or (names and stopped):
            raise UserError(f"{self.table.name}: {'; '.join(dict.fromkeys(stopped))}")
        return free

    def comparison(self, recipes: Sequence[str], seeds: Sequence[int]) -> Comparison:
        """The runs to train."""
        return plan_comparison(self.config, self.words, recipes, seeds, self.folder, self.changed)

    def runs(self, recipe: str) -> list[RunFolder]:
        """What there is of a recipe, one run per seed."""
        found = (RunFolder(path) for path in self.folder.glob(f"{recipe}-seed*") if path.name[-1].isdigit())
        own = (each for each in found if each.path.name.rpartition("-seed")[0] == recipe and each.config.is_file())
        return sorted(own, key=lambda each: int(each.path.name.rpartition("-seed")[2]))

    def finished(self, recipe: str) -> list[Path]:
        return [run.path for run in self.runs(recipe) if run.is_finished]

    def state(self, recipe: str) -> str:
        """How far a row is, in a few words."""
        runs, obstacle = self.runs(recipe), self.obstacles[recipe]
        begun = [run for run in runs if not run.is_finished]
        if not runs:
            return obstacle.brief if obstacle else "missing"
        if not begun:
            return "done"
        if any(DIVERGED in run.read_facts() for run in begun):
            return DIVERGED
        names = [run.read_facts().get("tasks", []) for run in begun]
        done = sum(len(run.finished(tasks)) for run, tasks in zip(begun, names, strict=True))
        return f"begun, {done} of {counted(sum(map(len, names)), 'task')}"

    @property
    def length(self) -> str:
        """How long tasks are trained."""
        return self.kind.length(self._experiment(self.data("eft")))

    @property
    def whole_length(self) -> str:
        """The same by the table's config."""
        return self.kind.length(self._in_print)

    @functools.cached_property
    def tasks(self) -> list[str]:
        """All tasks of the sequence; with `--tasks` only the first of them are trained."""
        changed = with_overrides(read_yaml(self.config), self.words) if self.words or self.settings.small else None
        return list((self._experiment(changed) if changed else self._in_print).task_names)

    @property
    def trained_tasks(self) -> int:
        return min(len(self.tasks), self.settings.tasks or len(self.tasks))

    @functools.cached_property
    def _in_print(self) -> Experiment:
        """The paper's own."""
        return self._experiment(read_yaml(find_config(self.table.config)))

    def _experiment(self, data: dict[str, Any]) -> Experiment:
        return build(self.kind.experiment_type, data, str(self.config))

    def record(self) -> None:
        """Write down what the folder's runs are for, so that the page shows them again."""
        path = self.folder / RECORD
        with exclusive(self.folder / ".plan.lock"):
            known = json.loads(path.read_text()) if path.is_file() else {"tables": []}
            tables = list(dict.fromkeys([*known["tables"], self.table.name]))
            content = {"settings": asdict(self.settings), "tables": tables}
            if content != known:
                write_json(path, content)


def recorded_plans(paper: Paper, out: Path) -> list[Plan]:
    """All that was trained for in a folder, in the paper's order; the largest budget first."""
    plans = [plan for path in sorted(out.glob(f"*/*/{RECORD}")) for plan in _recorded(paper, path, out)]
    order = [table.name for table in paper.tables]
    return sorted(plans, key=lambda plan: (order.index(plan.table.name), -plan.settings.budget, plan.folder))


def _recorded(paper: Paper, path: Path, out: Path) -> Iterator[Plan]:
    with contextlib.suppress(ValueError):
        content = json.loads(path.read_text())
        settings = build(Settings, content["settings"], str(path))
        for table in (table for table in paper.tables if table.name in content["tables"]):
            yield Plan(paper, table, settings, out)
