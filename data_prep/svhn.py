"""SVHN (street view house numbers), train and test, labelled

Where:    http://ufldl.stanford.edu/housenumbers (train_32x32.mat and test_32x32.mat).
Layout:   SOURCE/{train,test}_32x32.mat (torchvision's own files), or a tree, .tar, .tar.gz or
          .zip of train/<class>/<image> and test/<class>/<image>.
          OUTPUT becomes a folder of train.lmdb and test.lmdb.
Example:  python -m data_prep svhn downloads data/svhn
"""

import argparse

from data_prep import folder
from data_prep.torchvision_files import splits_from_torchvision
from eftgan.data.conversion import Job
from eftgan.data.trees import open_tree

SIZE, EXACT = 32, True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SVHN has no options of its own."""


def plan(args: argparse.Namespace) -> dict[str, Job]:
    tree = open_tree(args.source)
    if "train_32x32.mat" in tree:
        return splits_from_torchvision("SVHN", tree.path)
    return folder.labelled_splits(tree)
