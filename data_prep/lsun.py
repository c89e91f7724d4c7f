"""one category of LSUN, from its own LMDB

Where:    http://dl.yf.io/lsun/scenes/church_outdoor_train_lmdb.zip, .../tower_train_lmdb.zip (unzip them).
Layout:   SOURCE is the unzipped folder with data.mdb in it: key -> WebP or JPEG bytes.
Example:  python -m data_prep lsun church_outdoor_train_lmdb data/churches.lmdb --size 64
"""

import argparse

from eftgan.data.conversion import Job, LoadEntry
from eftgan.data.stores import lsun_keys

SIZE, EXACT = 64, False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """LSUN has no options of its own."""


def plan(args: argparse.Namespace) -> Job:
    return Job([(key, None) for key in lsun_keys(args.source)], LoadEntry(args.source))
