"""A task before and after others were learned."""

from collections.abc import Mapping

from eftgan.demo.markup import Figure
from eftgan.demo.studio import Order, Studio
from eftgan.reports.results import shown_of

REAL = "Real images"
MOST_ROWS = 8


def history(studio: Studio, task: str, wanted: Order) -> list[Figure]:
    """A task as it was drawn when it was just learned, and after every task since; of many a selection."""
    learned = studio.tasks.index(task)
    figures = []
    for after in (learned + later for later in shown_of(len(studio.tasks) - learned, MOST_ROWS)):
        if studio.has_task_file(after):
            same = ", the same to the bit" if studio.run.keeps_tasks and after > learned else ""
            says = "just learned" if after == learned else f"after {studio.tasks[after]}{same}"
            figures.append(Figure(studio.task_after(task, after, wanted), "png", says))
    return figures


def real_images(studios: Mapping[str, Studio], task: str) -> dict[str, list[Figure]]:
    """The picture of real images that training left, if it did."""
    for studio in studios.values():
        if task in studio.tasks:
            path = studio.run.folder.real_grid(studio.tasks.index(task), task)
            if path.is_file():
                return {REAL: [Figure(path.read_bytes(), "png", f"real {task}")]}
    return {}
