"""The model card: what the run learned, how well, what it costs, and how to load it, from the data of the report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from eftgan import __version__
from eftgan.reports import summary, tables
from eftgan.reports.items import Cell, Table
from eftgan.reports.results import Study, studies
from eftgan.reports.runs import read_run
from eftgan.reports.text import markdown_table, md
from eftgan.runfolder import RunFolder
from eftgan.scores import read_scores

PAPER = "https://arxiv.org/abs/2103.13558"
MOST_TASKS = 24  # rows of the list of tasks; of more the first ones are named


@dataclass(frozen=True)
class Shown:
    """What a card tells of a run that its score lines do not."""

    tags: Sequence[str]
    pipeline: str  # the Hub's word for what the network does
    network: str  # one line
    method: str
    tasks: Sequence[str]  # those that are shared
    classes: dict[str, list[str]]  # of a classifier, by task
    example: Sequence[str]  # Python lines that use `run` with the last task
    command: str  # what people type; {name} stands for the repository
    one_file_each: bool  # whether a task can be fetched without the others


def model_card(shown: Shown, name: str, licence: str | None, folder: RunFolder, picture: str | None) -> str:
    """README.md of the repository: metadata for the Hub, then words and tables for people."""
    found = _studies(folder)
    parts = [
        _metadata(shown, licence),
        f"# {md(name.rpartition('/')[2])}\n",
        *(f"{md(text)}\n" for study in found for text in summary.paragraphs(study)),
        *([] if found else [f"A network that learned {len(shown.tasks)} tasks, one after another.\n"]),
        *([f"![Samples, one row per task]({picture})\n"] if picture else []),
        "## Load it\n",
        *_loading(shown, name),
        "## Tasks\n",
        f"{md(shown.network)}\n",
        markdown_table(_tasks(shown, folder)),
        *(part for study in found for part in _figures(study)),
        "## How it was made\n",
        f"Continual learning by eftgan {__version__}, which implements [EFT]({PAPER}) and other methods; this run's is "
        f"`{shown.method}`. `config.yaml` has every setting.\n",
        f"Licence: {md(licence)}." if licence else "No licence was named: ask the owner before you use it.",
    ]
    return "\n".join(parts) + "\n"


def _metadata(shown: Shown, licence: str | None) -> str:
    facts = {"library_name": "eftgan", "pipeline_tag": shown.pipeline, "tags": ["continual-learning", *shown.tags]}
    text = yaml.safe_dump(facts | ({"license": licence} if licence else {}), sort_keys=False, allow_unicode=True)
    return f"---\n{text}---\n"


def _loading(shown: Shown, name: str) -> Iterator[str]:
    last = shown.tasks[-1]
    fetched = "only its file and what all tasks share" if shown.one_file_each else "one file serves all tasks"
    yield "```python"
    yield "import eftgan\n"
    yield f'run = eftgan.load_run("{name}", task="{last}")  # {fetched}'
    yield from shown.example
    yield "```\n"
    yield f"Without `task=` every task is fetched. In a shell: `{shown.command.format(name=name)}`\n"


def _tasks(shown: Shown, folder: RunFolder) -> Table:
    """One row per task: its number, name, classes and file."""
    columns = ["Task", "Number", *(["Classes"] if shown.classes else []), "File", "Bytes"]
    numbers = {task: number for number, task in enumerate(folder.read_facts().get("tasks", shown.tasks))}
    rows = []
    for task in shown.tasks[:MOST_TASKS]:
        file = folder.task_file(numbers.get(task, 0), task)
        classes = [Cell(", ".join(shown.classes.get(task, [])))] if shown.classes else []
        own = shown.one_file_each or task == shown.tasks[-1]
        sizes = [file.name, f"{file.stat().st_size:,}"] if own else ["in the last task's", "–"]
        rows.append([Cell(task), Cell(str(numbers.get(task, 0) + 1)), *classes, *map(Cell, sizes)])
    more = len(shown.tasks) - len(rows)
    shared = f"Shared by all tasks: {folder.shared.stat().st_size:,} bytes." if folder.shared.exists() else ""
    notes = [text for text in (shared, f"And {more:,} more." if more else "") if text]
    return Table("What it learned, in this order.", columns, rows, notes=notes)


def _figures(study: Study) -> Iterator[str]:
    """Scores of the main metric task by task, and growth."""
    if study.main is not None:
        yield f"## {md(study.main.name)}\n"
        if warning := summary.stand_in(study):
            yield f"> {md(warning)}\n"
        yield markdown_table(tables.score_table(study, study.main))
    if growth := study.growth():
        yield "## Growth\n"
        yield markdown_table(tables.growth_table(growth))


def _studies(folder: RunFolder) -> list[Study]:
    """The run's scores; none where nothing was measured."""
    return studies(read_run(folder.path)) if read_scores(folder.scores) else []
