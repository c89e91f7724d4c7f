"""Names that several parts agree on, and the rule for names of tasks."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from eftgan.errors import UserError

INITS = ("previous", "identity", "random")  # where a new task starts, beside the names of tasks
NEAREST = "nearest"  # stands in configs for the name of the earlier task with the most similar images
GENERATOR, CLASSIFIER = "generator", "classifier"  # roles of networks, beside "discriminator64" and so on
INFERENCE = "inference"  # stands in task files where a role does: what a task keeps to be told from others
AUTO = "auto"  # stands in configs for the rule of task inference that suits the method
BASE_NAME = "base"  # stands in mixes and ways for the base network, where no task has that name
REAL = "real"  # stands in score lines for the last task trained, where real images are compared with real ones
TASK_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}", re.ASCII)


def check_task_name(name: str) -> str:
    """The name itself; a UserError where it could not serve: names become file names and module keys."""
    if not isinstance(name, str) or not TASK_NAME.fullmatch(name):
        raise UserError(
            f"task name {name!r} is not usable: begin with a letter or digit, then letters, digits, '_' or '-', "
            "64 characters at most"
        )
    if name in (*INITS, NEAREST):
        raise UserError(f"task name {name!r} is not usable: it names a way to start a task; choose another")
    if name == REAL:
        raise UserError(f"task name {name!r} is not usable: scores of real images carry it; choose another")
    return name


def refuse_alike_names(names: Sequence[str]) -> None:
    """Refuse tasks whose names differ in case only: on some disks their files would be one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise UserError(f"task names {other} and {name} differ in case only; choose another name for one of them")


def counted(count: float, noun: str) -> str:
    """A number and what it counts: 1 file, 2 files, 0.5 epochs."""
    return f"{count if isinstance(count, int) else format(count, 'g')} {noun}{'' if count == 1 else 's'}"


def plain_name(path: PurePath) -> str:
    """A file's name without its endings, of such letters as names of tasks have."""
    stem = re.sub(r"(\.tar)?\.\w{1,5}$", "", path.name, flags=re.ASCII)
    return re.sub(r"[^\w-]+", "-", stem, flags=re.ASCII).strip("-_")[:40] or "images"
