"""What a search found: one file per trial, the table of all, and the best as a recipe."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from eftgan.evaluation.metrics import Metric
from eftgan.files import write_json, write_text
from eftgan.studies.space import Axis, Params

Scores = dict[str, dict[str, float]]  # by seed, by task


@dataclass(frozen=True)
class Finding:
    """How one trial ended."""

    number: int
    params: Params
    scores: Scores  # empty where it failed
    failed: str | None = None  # why

    @property
    def by_seed(self) -> list[float]:
        return [fmean(by_task.values()) for by_task in self.scores.values()]

    @property
    def value(self) -> float | None:
        """The mean over tasks and seeds."""
        return fmean(self.by_seed) if self.scores else None

    @property
    def spread(self) -> float | None:
        return stdev(self.by_seed) if len(self.by_seed) > 1 else None


def write_finding(folder: Path, finding: Finding) -> None:
    write_json(folder / f"trial-{finding.number:03d}.json", asdict(finding))


def read_findings(folder: Path) -> list[Finding]:
    """In the order of the trials."""
    paths = sorted(folder.glob("trial-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [Finding(**json.loads(path.read_text())) for path in paths]


def best_of(findings: Sequence[Finding], metric: Metric) -> Finding | None:
    """The earliest of the best; none where all failed."""
    ended = [(finding.value, finding) for finding in findings if finding.value is not None]
    sign = 1 if metric.lower_is_better else -1
    return min(ended, key=lambda pair: (sign * pair[0], pair[1].number))[1] if ended else None


def write_table(folder: Path, axes: Sequence[Axis], findings: Sequence[Finding], metric: Metric) -> list[Path]:
    """trials.csv, and trials.md to read: the best stands first."""
    best = best_of(findings, metric)
    sign = 1 if metric.lower_is_better else -1
    ranked = sorted(findings, key=lambda each: (each.value is None, sign * (each.value or 0.0), each.number))
    tasks = list(dict.fromkeys(task for each in findings for scores in each.scores.values() for task in scores))
    keys, text = [axis.key for axis in axes], io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", *keys, metric.name, *(f"{metric.name} {task}" for task in tasks), "seeds", "failed"])
    lines = [
        "| trial | " + " | ".join(f"`{key}`" for key in keys) + f" | {metric.name} ({metric.direction}) | |",
        "| --: |" + " --- |" * len(keys) + " --: | --- |",
    ]
    for each in ranked:
        shown = [_shown(each.params[key]) for key in keys]
        means = [fmean(scores[task] for scores in each.scores.values()) if each.scores else "" for task in tasks]
        value = "" if each.value is None else each.value
        table.writerow([each.number, *shown, value, *means, len(each.scores), each.failed or ""])
        figure = "failed" if each.value is None else metric.text(each.value, each.spread)
        note = "chosen" if each is best else (each.failed or "").partition(";")[0].replace("|", "/")
        lines.append(f"| {each.number} | " + " | ".join(shown) + f" | {figure} | {note} |")
    write_text(folder / "trials.csv", text.getvalue())
    write_text(folder / "trials.md", "\n".join(lines) + "\n")
    return [folder / "trials.csv", folder / "trials.md"]


def _shown(value: Any) -> str:
    """A choice without the quotes of its JSON, a number in a few digits."""
    if isinstance(value, str):
        return str(json.loads(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_recipe(
    path: Path, config: Path, before: dict[str, Any], after: dict[str, Any], title: str, comments: Sequence[str]
) -> None:
    """A YAML of what `after` changes in the config, whose mapping is `before`."""
    parent = os.path.relpath(config.resolve(), path.parent.resolve())
    data = {"extends": parent, "out": f"runs/{config.stem}-{path.stem}", "title": title, **changes(before, after)}
    text = "".join(f"# {line}\n" for line in comments) + yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    write_text(path, text)


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The mapping that, laid over `before`, gives `after` (which has all of its keys)."""
    found = {}
    for key, value in after.items():
        old = before.get(key)
        if key in before and old == value:
            continue
        same_kind = isinstance(old, dict) and isinstance(value, dict) and old.get("name") == value.get("name")
        found[key] = changes(old, value) if same_kind and isinstance(old, dict) else value
    return found
