"""any folder tree, tar or zip of images

Where:    your own pictures. To train a generator, the folder itself can be named in a config: it is
          converted then. This command is for those who want to choose how, and where the set lies.
Layout:   SOURCE is a folder, a .tar, .tar.gz or .zip; images may lie at any depth.
          With --labels the first folder names the class: SOURCE/<class>/.../<image>.
          With --splits TRAIN TEST (for classification): SOURCE/TRAIN/<class>/... and
          SOURCE/TEST/<class>/... become OUTPUT/train.lmdb and OUTPUT/test.lmdb.
          With --held-out SHARE the same of SOURCE/<class>/..., with so much of every class in test.lmdb.
Example:  python -m data_prep folder pictures/cats.tar data/cats.lmdb --size 64
          python -m data_prep folder flowers.zip data/flowers --size 32 --exact --splits train test
"""

import argparse

from eftgan.data.conversion import Job, LoadFromTree
from eftgan.data.held_out import hold_out
from eftgan.data.trees import Tree, class_folders, open_tree
from eftgan.errors import UserError

SIZE, EXACT = 64, False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", action="store_true", help="store the first folder's name as the class")
    parser.add_argument("--splits", nargs=2, metavar=("TRAIN", "TEST"), help="the folders of a labelled set")
    parser.add_argument(
        "--held-out", type=float, metavar="SHARE", help="of every class into test.lmdb, for example 0.2"
    )


def plan(args: argparse.Namespace) -> Job | dict[str, Job]:
    tree = open_tree(args.source)
    if args.splits:
        return labelled_splits(tree, *args.splits)
    if args.held_out is not None:
        return held_out_splits(tree, args.held_out)
    if not args.labels:
        return Job([(name, None) for name in tree.images()], LoadFromTree(tree))
    classes, items = class_folders(tree, tree.top())
    return Job(items, LoadFromTree(tree), classes)


def held_out_splits(tree: Tree, share: float) -> dict[str, Job]:
    """Jobs for a tree of <class>/ folders."""
    if not 0 < share < 1:
        raise UserError(f"--held-out {share:g} is not a share between 0 and 1, such as 0.2")
    classes, items = class_folders(tree, tree.top())
    train, test = hold_out(items, classes, share, tree.top())
    return {split: Job(part, LoadFromTree(tree), classes) for split, part in (("train", train), ("test", test))}


def labelled_splits(tree: Tree, train: str = "train", test: str = "test") -> dict[str, Job]:
    """Jobs for a tree of train/<class>/ and test/<class>/, at its top or one folder below."""
    jobs = {}
    for split, folder in (("train", train), ("test", test)):
        folder = folder.strip("/") + "/"
        classes, items = class_folders(tree, tree.prefix_of(folder) + folder)
        jobs[split] = Job(items, LoadFromTree(tree), classes)
    missing = set(jobs["train"].classes or ()) ^ set(jobs["test"].classes or ())
    if missing:
        raise UserError(f"{tree.path}: {train}/ and {test}/ differ in classes: {', '.join(sorted(missing)[:5])}")
    return jobs
