"""Classification tasks: the classes of one or several labelled sources, dealt out over a sequence of tasks."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from eftgan.data.collection import held_out
from eftgan.data.labelled import LabelledImages, open_labelled
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.names import check_task_name

_NOTATION = re.compile(r"(?P<name>.+?)(-(?P<classes>\d+))?(/(?P<tasks>\d+))?")


@dataclass(frozen=True)
class ClassSource:
    """A labelled source in a sequence: `CIFAR-100/10` is its classes in 10 tasks, `CIFAR-10` one task of all.

    `data` and `test_share` are what `open_labelled` takes; `take` keeps the first so many tasks of the source.
    """

    name: str
    data: str
    take: int | None = None
    test_share: float | None = None
    digest: str | None = None  # of the training images, as a run recorded it: others are refused


Parts = tuple[LabelledImages, LabelledImages]  # training and test images


@dataclass
class LabelledTask:
    """One task: images with labels 0..k-1, and the names of the k classes.

    The images are opened when someone first asks for them: those of a finished task may be gone.
    """

    name: str
    classes: list[str]
    open: Callable[[], Parts]

    @functools.cached_property
    def parts(self) -> Parts:
        return self.open()

    @property
    def is_open(self) -> bool:
        return "parts" in vars(self)

    @property
    def train(self) -> LabelledImages:
        return self.parts[0]

    @property
    def test(self) -> LabelledImages:
        return self.parts[1]


def split_classes(notation: str, classes: int, seed: int | None) -> list[list[int]]:
    """Class indices of each task for `NAME/TASKS`, e.g. `CIFAR-100/10`: equal shares of a seeded permutation.

    Without `/TASKS` there is one task; without a seed the classes keep their order.
    """
    match = _NOTATION.fullmatch(notation)
    if match is None:
        raise UserError(f"{notation!r} does not read as NAME or NAME/TASKS, e.g. CIFAR-100/10")
    if match["classes"] and int(match["classes"]) != classes:
        raise UserError(f"{notation} speaks of {match['classes']} classes, but the data has {classes}")
    tasks = int(match["tasks"] or 1)
    if tasks < 1 or classes % tasks:
        fitting = ", ".join(str(n) for n in range(1, classes + 1) if classes % n == 0)
        raise UserError(f"{notation}: {classes} classes do not divide into {tasks} tasks; choose from {fitting}")
    if tasks == 1 or seed is None:
        order = list(range(classes))
    else:  # seeded by the source's name, so that it is split alike in any sequence
        generator = stream(seed, notation.rpartition("/")[0], "classes")
        order = torch.randperm(classes, generator=generator).tolist()
    share = classes // tasks
    return [order[first : first + share] for first in range(0, classes, share)]


def task_names_of(source: ClassSource) -> list[str]:
    """Names of a source's tasks, known before its images are opened."""
    match = _NOTATION.fullmatch(source.name)
    count = int(match["tasks"] or 1) if match else 0
    return [_task_name(source.name, number, count) for number in range(1, count + 1)][: source.take]


def labelled_tasks(
    sources: Sequence[ClassSource],
    *,
    size: int,
    seed: int | None,
    limit: int | None = None,
    known: Mapping[str, list[str]] | None = None,
) -> list[LabelledTask]:
    """The tasks of all sources in order, each source split by its own notation.

    `limit` keeps so many images of each split of each source, evenly over its classes. `known`: classes of tasks whose
    images need not be there; a source with no other tasks is opened only when someone asks for its images.
    """
    tasks = [task for source in sources for task in _tasks_of(source, size, seed, limit, known or {})]
    names = [task.name for task in tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"task name used twice: {', '.join(twice)}; give the sources different names")
    return tasks


def without_held_out(task: LabelledTask, share: float) -> LabelledTask:
    """The task with a share of each class's training images in place of its test images, which nobody looks at."""

    def parts() -> Parts:
        train = task.train
        split = []
        for label in range(len(task.classes)):
            own = torch.nonzero(train.targets == label).flatten()
            if len(own):  # a class without images is refused by those who know what for
                generator = stream(0, task.name, "held out", label)
                split.append([own[indices] for indices in held_out(len(own), share, generator)])
        rest, held = (torch.cat(each).sort().values for each in zip(*split, strict=True))
        return train.subset(rest), train.subset(held)

    return LabelledTask(task.name, task.classes, parts)


def _tasks_of(
    source: ClassSource, size: int, seed: int | None, limit: int | None, known: Mapping[str, list[str]]
) -> list[LabelledTask]:
    names = task_names_of(source)

    @functools.cache
    def opened() -> tuple[LabelledImages, LabelledImages, list[str], list[list[int]]]:
        train, test, classes = open_labelled(
            source.data, size=size, seed=seed or 0, limit=limit, test_share=source.test_share
        )
        if source.digest not in (None, train.digest):
            raise UserError(
                f"source {source.name}: {source.data} holds other images than this run was started with; put those back"
            )
        shares = split_classes(source.name, len(classes), seed)
        if source.take is not None and not 1 <= source.take <= len(shares):
            raise UserError(f"{source.name}: cannot take {source.take} of {len(shares)} tasks")
        return train, test, classes, shares

    def open_share(number: int) -> Parts:
        train, test, _, shares = opened()
        return train.of_classes(shares[number]), test.of_classes(shares[number])

    if names and all(name in known for name in names):
        all_classes = [known[name] for name in names]
    else:
        _, _, classes, shares = opened()
        all_classes = [[classes[index] for index in share] for share in shares]
    return [
        LabelledTask(name, own, functools.partial(open_share, number))
        for number, (name, own) in enumerate(zip(names, all_classes, strict=False))
    ]


def _task_name(notation: str, number: int, tasks: int) -> str:
    base = re.sub(r"[^\w-]+", "-", notation.rpartition("/")[0] or notation, flags=re.ASCII).strip("-")
    return check_task_name(base if tasks == 1 else f"{base}-{number:0{len(str(tasks))}d}")
