"""What the terminal shows: the paper's tables and how far each is, or the rows of one."""

from collections.abc import Sequence
from pathlib import Path

from eftgan.errors import UserError
from eftgan.studies.paper.plan import Plan, recorded_plans
from eftgan.studies.paper.protocols import Settings
from eftgan.studies.paper.tables import Paper


def list_tables(paper: Paper, settings: Settings, out: Path) -> str:
    """A line per table with these settings, and one for every other that was begun in the folder."""
    lines = [("name", "in the paper", "what", "runs", "")]
    begun = recorded_plans(paper, out)
    for table in paper.tables:
        own = Plan(paper, table, settings, out)
        others = [plan for plan in begun if plan.table is table and plan.settings.folder != settings.folder]
        lines.append((table.name, table.place, table.title, *_brief(own)))
        lines += [("", "", f"  {plan.settings.folder}", *_brief(plan)) for plan in others]
    return _aligned(lines)


def list_rows(plan: Plan) -> str:
    """A line per row of a table."""
    lines = [("recipe", "row", "state", "finished seeds")]
    for row in plan.table.rows:
        seeds = [path.name.rpartition("-seed")[2] for path in plan.finished(row.recipe)]
        lines.append((row.recipe, row.name, plan.state(row.recipe), ", ".join(seeds)))
    remedies = dict.fromkeys(found.remedy for found in plan.obstacles.values() if found)
    head = f"{plan.table.heading} ({plan.table.label}), {plan.length}; {plan.folder}"
    return "\n".join([head, _aligned(lines), *remedies])


def _brief(plan: Plan) -> tuple[str, str]:
    """How many rows have runs, and what is in the way of others."""
    try:
        states = [plan.state(row.recipe) for row in plan.table.rows]
    except UserError as error:  # settings that are not for this table
        return "–", str(error)
    found = list(plan.obstacles.values())
    if found[0] and all(each and each.mistake for each in found):
        return "–", found[0].remedy
    done, begun = states.count("done"), [state for state in states if state.startswith("begun")]
    others = dict.fromkeys(state for state in states if state not in ("done", "missing", *begun))
    hints = [f"{state}: {states.count(state)}" if state == "not here yet" else state for state in others]
    return f"{done} of {len(states)} done" + f", {len(begun)} begun" * bool(begun), "; ".join(hints)


def _aligned(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
