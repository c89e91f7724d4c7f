"""From a table and settings to runs: which there are, which can be trained, and how far they are."""

import contextlib
import copy
import functools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eftgan.config import build, read_yaml
from eftgan.data.labelled import is_path
from eftgan.errors import UserError
from eftgan.files import exclusive, write_json
from eftgan.kinds import find_config, kind_of_config
from eftgan.methods import METHODS
from eftgan.names import counted
from eftgan.runfolder import DIVERGED, RunFolder
from eftgan.studies.comparison import (
    Comparison,
    plan_comparison,
    recipe_data,
    recipe_file,
    refuse_choice_of_method,
    with_overrides,
)
from eftgan.studies.paper.protocols import Settings, entries_with_data, method_of, value_at
from eftgan.studies.paper.tables import Form, Paper, PaperTable, Row
from eftgan.studies.sharing import AnyKind
from eftgan.training.experiment import Experiment

RECORD = "plan.json"  # beside the runs: with which settings, and for which tables


@dataclass(frozen=True)
class Obstacle:
    """Why a row cannot be trained."""

    brief: str  # for a cell
    remedy: str
    mistake: bool = False  # in the words that were typed: nothing is trained before it is put right


@dataclass(frozen=True)
class Plan:
    """One table with one set of settings."""

    paper: Paper
    table: PaperTable
    settings: Settings
    out: Path

    @functools.cached_property
    def config(self) -> Path:
        name = self._form.config if self._form else None
        return find_config(name or self.table.config)

    @property
    def _form(self) -> Form | None:
        return self.paper.form(self.table) if self.settings.small else None

    @property
    def _small_words(self) -> list[str]:
        return self._form.words if self._form else []

    @functools.cached_property
    def kind(self) -> AnyKind:
        return kind_of_config(read_yaml(self.config), str(self.config))

    @property
    def folder(self) -> Path:
        """Of the runs; tables of one config share them."""
        return self.out / self.config.stem / self.settings.folder

    def changed(self, kind: AnyKind, data: dict[str, Any]) -> dict[str, Any]:
        """A config's mapping as the settings have it."""
        return self.settings.change(kind, self._typed(data), self.paper.protocol(self.settings.protocol))

    def _typed(self, data: dict[str, Any]) -> dict[str, Any]:
        """A config's mapping with the words that were typed, which win over those of the small form."""
        typed = with_overrides(copy.deepcopy(data), self.settings.words)
        if self._form is None or value_at(typed, "training.optimizer") == "adam":
            return typed
        return with_overrides(data, [*self._form.with_sgd, *self.settings.words])

    def _read(self, recipe: str) -> dict[str, Any]:
        return recipe_data(self.kind, self.config, self._small_words, recipe)

    def _whole(self, recipe: str) -> Experiment:
        """A recipe with the words that were typed, before it is cut down; refused where it cannot be built."""
        return self._experiment(self._typed(self._read(recipe)))

    def data(self, recipe: str) -> dict[str, Any]:
        """What a recipe's runs are made from."""
        self._whole(recipe)
        return self.changed(self.kind, self._read(recipe))

    @functools.cached_property
    def obstacles(self) -> dict[str, Obstacle | None]:
        """By recipe, what stands in the way of training it."""
        return {row.recipe: self._obstacle(row) for row in self.table.rows}

    def _obstacle(self, row: Row) -> Obstacle | None:
        if not recipe_file(self.config, row.recipe).is_file() and row.recipe not in METHODS:
            if row.recipe not in self.paper.awaited:
                raise UserError(f"{self.table.name}, {row.name}: no method or recipe {row.recipe!r}")
            return Obstacle("not here yet", f"{row.recipe} is not implemented yet")
        method = method_of(self._read(row.recipe))
        if method not in METHODS:
            return Obstacle("not here yet", f"{method} is not implemented yet")
        try:
            data = self.data(row.recipe)
            size = self.kind.image_size(self._experiment(data))
        except UserError as error:
            return Obstacle("settings do not fit", str(error), mistake=True)
        for place in (entry["data"] for entry in entries_with_data(self.kind, data)):
            if is_path(place) and not os.path.exists(os.path.expanduser(place)):
                return Obstacle(f"no {place}", self.paper.remedy(self.settings.name_of(place), place, size))
        return None

    def trainable(self, names: Sequence[str] | None = None) -> list[str]:
        """The recipes that can be trained, or those that were named.

        Refused where there is none, where one that was named cannot be, and where words do not fit a row.
        """
        recipes = list(self.obstacles)
        free = [recipe for recipe in names or recipes if self.obstacles[recipe] is None]
        stopped = [found for recipe in names or recipes if (found := self.obstacles[recipe])]
        if mistakes := [found for found in stopped if found.mistake]:
            raise UserError(f"{self.table.name}: {mistakes[0].remedy}")
        if not free or (names and stopped):
            raise UserError(f"{self.table.name}: {'; '.join(dict.fromkeys(found.remedy for found in stopped))}")
        return free

    def comparison(self, recipes: Sequence[str], seeds: Sequence[int]) -> Comparison:
        """The runs to train."""
        refuse_choice_of_method(self.settings.words)
        return plan_comparison(self.config, self._small_words, recipes, seeds, self.folder, self.changed)

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
        return self.kind.length(self._experiment(self.data(self._fitting)))

    @property
    def whole_length(self) -> str:
        """The same by the table's config."""
        return self.kind.length(self._in_print)

    @functools.cached_property
    def tasks(self) -> list[str]:
        """All tasks of the sequence; with `--tasks` only the first of them are trained."""
        return list(self._whole(self._fitting).task_names)

    @property
    def trained_tasks(self) -> int:
        return min(len(self.tasks), self.settings.tasks or len(self.tasks))

    @functools.cached_property
    def _fitting(self) -> str:
        """A recipe that the words fit: EFT's, unless they are keys of another method."""
        for recipe in ("eft", *(row.recipe for row in self.table.rows)):
            with contextlib.suppress(UserError):
                self.data(recipe)
                return recipe
        return "eft"  # which will say why not

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


def named_rows(plans: Sequence[Plan], names: Sequence[str] | None) -> list[list[str] | None]:
    """Which of the named rows each table has; None stands for all rows, where no names are given.

    Refused where no table has a row, and where a table has none of them.
    """
    if names is None:
        return [None] * len(plans)
    tables = ", ".join(plan.table.name for plan in plans)
    recipes = list(dict.fromkeys(recipe for plan in plans for recipe in plan.obstacles))
    for name in names:
        if name not in recipes:
            raise UserError(f"--rows {name}: no such row in {tables}; there are: {', '.join(recipes)}")
    rows: list[list[str] | None] = [[name for name in names if name in plan.obstacles] for plan in plans]
    if empty := [plan.table.name for plan, own in zip(plans, rows, strict=True) if not own]:
        raise UserError(f"--rows {','.join(names)}: {empty[0]} has none of them")
    return rows


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
