"""Rules of task inference side by side, on a run that is trained: what each one finds, and what its tasks keep."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from eftgan.classifier.run import ClassifierRun
from eftgan.classifier.scorer import ClassifierScorer
from eftgan.evaluation.accuracy import CIL, TASK, TIL
from eftgan.evaluation.rules import AUTO, RULES, rule_named

COLUMNS = ("rule", "after", "tested on", CIL, TASK, TIL, "images", "bytes kept per task")


@dataclass(frozen=True)
class RuleScore:
    """One rule on one task's test images, after a task."""

    rule: str
    after: str
    tested: str
    shares: dict[str, float]  # by metric
    images: int
    kept_bytes: float  # per task, on average


def usable_rules(run: ClassifierRun) -> tuple[list[str], str]:
    """All rules that can be used on a run, and a line that says which cannot and why; empty where all can."""
    usable, refused = [], dict[str, list[str]]()
    for name in (AUTO, *RULES):
        if why := run.kept.obstacle(rule_named(name)):
            refused.setdefault(why, []).append(name)
        else:
            usable.append(name)
    reasons = "; ".join(f"{', '.join(names)}: each {why}" for why, names in refused.items())
    return usable, f"left out: {reasons}" if refused else ""


def score_rules(scorer: ClassifierScorer, through: int, names: Sequence[str]) -> list[RuleScore]:
    """Every rule on every seen task's test images; what is missing is fitted first, on training images alone."""
    run, found = scorer.run, []
    model, seen = scorer.model(through), scorer.run.tasks[: through + 1]
    asking = [rule_named(name) for name in names]
    for rule in asking:  # before any work
        run.kept.require(rule)
    for task in seen:  # one look at a task's training images serves all rules
        for rule in asking:
            run.kept.of(rule, [task], model)
    for name in names:
        rule = rule_named(name)
        size = run.kept.stored_bytes(rule, seen) / len(seen)
        for tested in scorer.there(through):
            shares, _ = scorer.shares(model, through, tested, name)
            images = len(run.labelled[tested].test)
            found.append(RuleScore(name, run.tasks[through], run.tasks[tested], shares, images, size))
    return found


def as_text(found: Sequence[RuleScore]) -> list[str]:
    """A line for each rule: averages over the tasks, in %."""
    rules = list(dict.fromkeys(each.rule for each in found))
    width = max(len(rule) for rule in (*rules, "rule"))
    lines = [f"{'rule':{width}}  accuracy-CIL  task found  accuracy-TIL  bytes kept per task"]
    for rule in rules:
        own = [each for each in found if each.rule == rule]
        cil, task, til = (100 * fmean(each.shares[metric] for each in own) for metric in (CIL, TASK, TIL))
        lines.append(f"{rule:{width}}  {cil:12.1f}  {task:10.1f}  {til:12.1f}  {own[0].kept_bytes:19,.0f}")
    return lines


def as_csv(found: Sequence[RuleScore]) -> str:
    """A line for each rule and task."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in found:
        values = [f"{each.shares[metric]:.6f}" for metric in (CIL, TASK, TIL)]
        writer.writerow([each.rule, each.after, each.tested, *values, each.images, f"{each.kept_bytes:.0f}"])
    return table.getvalue()
