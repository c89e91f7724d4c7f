"""any folder tree, tar or zip of images

Where:    your own pictures.
Layout:   SOURCE is a folder, an uncompressed .tar or a .zip; images may lie at any depth.
          With --labels the first folder names the class: SOURCE/<class>/.../<image>.
          With --splits TRAIN TEST (for classification): SOURCE/TRAIN/<class>/... and
          SOURCE/TEST/<class>/... become OUTPUT/train.lmdb and OUTPUT/test.lmdb.
Example:  python -m data_prep folder pictures/cats.tar data/cats.lmdb --size 64
          python -m data_prep folder flowers.zip data/flowers --size 32 --exact --splits train test
"""

import argparse

from data_prep.common import Job, LoadFromTree
from eftgan.data.trees import Tree, class_folders, open_tree
from eftgan.errors import UserError

SIZE, EXACT = 64, False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", action="store_true", help="store the first folder's name as the class")
    parser.add_argument("--splits", nargs=2, metavar=("TRAIN", "TEST"), help="the folders of a labelled set")


def plan(args: argparse.Namespace) -> Job | dict[str, Job]:
    tree = open_tree(args.source)
    if args.splits:
        return labelled_splits(tree, *args.splits)
    if not args.labels:
        return Job([(name, None) for name in tree.images()], LoadFromTree(tree))
    classes, items = class_folders(tree, tree.top())
    return Job(items, LoadFromTree(tree), classes)


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
