"""`eftgan classify`: what images show."""

import argparse
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from eftgan.classifier.run import ClassifierRun
    from eftgan.data.trees import Tree

HELP = "Say what images show, by a trained classifier."
EXAMPLES = """\
eftgan classify runs/shapes-classes --image photo.jpg
eftgan classify runs/shapes-classes --image photo.jpg --task 2 --top 1
eftgan classify runs/shapes-classes --image photos/ more.zip last.png --out found.csv"""
COLUMNS = ("image", "task", "class", "probability", "unreadable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or hf:USER/NAME")
    what = "an image, several, or a folder, .zip, .tar or .tar.gz of them"
    parser.add_argument("--image", type=Path, required=True, nargs="+", metavar="IMAGE", help=what)
    parser.add_argument("--task", help="a task's name or number (default: inferred)")
    parser.add_argument(
        "--inference",
        metavar="RULE",
        help="how the task is inferred where --task is not given, such as entropy+lda-joint (default: as the run's "
        "config says)",
    )
    parser.add_argument("--top", type=int, default=5, help="how many classes of a single image to show")
    parser.add_argument("--out", type=Path, metavar="CSV", help="write a table: image, task, class, probability")


def run(args: argparse.Namespace) -> None:
    """Print the most probable classes of one image, or a line for each of several and how many there are of each."""
    from eftgan.evaluation.rules import rule_named
    from eftgan.kinds import open_run

    saved = cast("ClassifierRun", open_run(args.run, "classifier", args.task))
    saved.require_trained()
    if args.task:
        saved.index(args.task)
    if args.inference:
        rule_named(args.inference)  # an unknown one is refused before any work
        saved.inference = args.inference
    images = [image for path in args.image for image in find_images(path)]
    if len(images) > 1 or args.image[0] != images[0].path:
        rows = list(_classify_many(saved, images, args.task))
        print("\n".join(["", *summary(rows)]))
    else:
        rows = [_classify_one(saved, images[0], args.task, args.top)]
    if args.out:
        _write_table(args.out, rows)


@dataclass(frozen=True)
class Image:
    """An image file, or one of a folder or archive."""

    path: Path  # what people would call it
    tree: "Tree | None" = None
    name: str = ""  # in the tree

    def read(self, size: int) -> "Tensor":
        """uint8 (3, size, size); a UserError where it cannot be read."""
        import torch

        from eftgan.data.images import decode_rgb, fit_square, to_chw

        try:
            content = self.path.read_bytes() if self.tree is None else self.tree.read(self.name)
            return torch.from_numpy(to_chw(fit_square(decode_rgb(content), size)))
        except Exception as error:  # decoders raise whatever a damaged file makes of them
            raise UserError(f"{self.path}: cannot be read as an image ({error})") from error


def find_images(path: Path) -> list[Image]:
    """The image, or all images of a folder or archive."""
    from eftgan.data.trees import is_archive_name, open_tree

    if not path.is_dir() and not is_archive_name(path.name):
        return [Image(path)]
    tree = open_tree(path)
    if not tree.images():
        raise UserError(f"{path}: no images in it")
    return [Image(path / name, tree, name) for name in tree.images()]


@dataclass(frozen=True)
class Row:
    """What was found of one image."""

    image: str
    task: str = ""
    found: str = ""
    probability: float = 0.0
    unreadable: str = ""

    def __str__(self) -> str:
        if self.unreadable:
            return f"{self.image}  {self.unreadable}"
        return f"{self.image}  {self.found} {self.probability:.1%}  (task {self.task})"


def _classify_one(saved: "ClassifierRun", image: Image, task: str | None, top: int) -> Row:
    found, ranked = saved.classify(image.read(saved.experiment.network.size), task)
    print(f"task {found}{'' if task else ' (inferred)'}")
    for name, share in ranked[: max(1, top)]:
        print(f"  {share:6.1%}  {name}")
    return Row(str(image.path), found, *ranked[0])


def _classify_many(saved: "ClassifierRun", images: list[Image], task: str | None) -> Iterator[Row]:
    """A row for each, printed as it is found; what cannot be read has one too."""
    ask = saved.asker(task)
    for image in images:
        try:
            found, ranked = ask(image.read(saved.experiment.network.size))
            row = Row(str(image.path), found, *ranked[0])
        except UserError as error:
            row = Row(str(image.path), unreadable=str(error).removeprefix(f"{image.path}: "))
        print(row, flush=True)
        yield row


def summary(rows: Sequence[Row]) -> list[str]:
    """How many images there are of each class, the most frequent first; a UserError where none could be read."""
    readable = [row for row in rows if not row.unreadable]
    if not readable:
        raise UserError(f"none of {len(rows)} images could be read; the first is {rows[0]}")
    missing = f", {len(rows) - len(readable)} unreadable" if len(readable) < len(rows) else ""
    counts = Counter((row.found, row.task) for row in readable)
    lines = [f"  {count:5}  {name}  (task {task})" for (name, task), count in counts.most_common()]
    return [f"{len(rows)} images{missing}", *lines]


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    from eftgan.files import write_text

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        share = "" if row.unreadable else f"{row.probability:.6f}"
        writer.writerow([row.image, row.task, row.found, share, row.unreadable])
    write_text(path, table.getvalue())
    print(path)
