"""Tiny-ImageNet-200, train and validation, labelled

Where:    http://cs231n.stanford.edu/tiny-imagenet-200.zip
Layout:   SOURCE (the folder or the .zip itself): train/<wnid>/images/*.JPEG, val/images/*.JPEG,
          val/val_annotations.txt. The validation images serve as the test set.
          OUTPUT becomes a folder of train.lmdb and test.lmdb.
Example:  python -m data_prep tiny tiny-imagenet-200.zip data/tiny-imagenet
"""

import argparse

from eftgan.data.conversion import Job, LoadFromTree
from eftgan.data.trees import class_folders, open_tree
from eftgan.errors import UserError

SIZE, EXACT = 64, True
ANNOTATIONS = "val/val_annotations.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Tiny-ImageNet has no options of its own."""


def plan(args: argparse.Namespace) -> dict[str, Job]:
    tree = open_tree(args.source)
    top = tree.prefix_of(ANNOTATIONS)
    classes, train = class_folders(tree, f"{top}train/")
    index = {wnid: i for i, wnid in enumerate(classes)}
    test = []
    for number, line in enumerate(tree.text(top + ANNOTATIONS).splitlines(), 1):
        name, wnid, *_ = [*line.split(), "", ""]
        if wnid not in index:
            raise UserError(f"{tree.path}/{ANNOTATIONS}, line {number}: class {wnid!r} is not a folder of train/")
        test.append((f"{top}val/images/{name}", index[wnid]))
    load = LoadFromTree(tree)
    return {"train": Job(train, load, classes), "test": Job(sorted(test), load, classes)}
