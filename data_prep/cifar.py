"""CIFAR-10 or CIFAR-100, train and test, labelled

Where:    https://www.cs.toronto.edu/~kriz/cifar.html (the python version; unpack it).
Layout:   SOURCE/cifar-10-batches-py or SOURCE/cifar-100-python (torchvision's own files), or a tree, .tar,
          .tar.gz or .zip of train/<class>/<image> and test/<class>/<image>.
          OUTPUT becomes a folder of train.lmdb and test.lmdb.
Example:  python -m data_prep cifar downloads data/cifar100 --classes 100
"""

import argparse

from data_prep import folder
from data_prep.torchvision_files import splits_from_torchvision
from eftgan.data.conversion import Job
from eftgan.data.trees import open_tree

SIZE, EXACT = 32, True
FOLDERS = {10: "cifar-10-batches-py", 100: "cifar-100-python"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--classes", type=int, choices=(10, 100), help="which set, where SOURCE holds torchvision's files of both"
    )


def plan(args: argparse.Namespace) -> dict[str, Job]:
    tree = open_tree(args.source)
    tops = {name.split("/", 1)[0] for name in tree.names}
    found = [classes for classes, name in FOLDERS.items() if name in tops and args.classes in (None, classes)]
    if found:
        return splits_from_torchvision(f"CIFAR{found[-1]}", tree.path)
    return folder.labelled_splits(tree)
