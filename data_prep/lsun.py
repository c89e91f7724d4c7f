"""one category of LSUN, from its own LMDB

Where:    http://dl.yf.io/lsun/scenes/church_outdoor_train_lmdb.zip, .../tower_train_lmdb.zip (unzip them).
Layout:   SOURCE is the unzipped folder with data.mdb in it: key -> WebP or JPEG bytes.
Example:  python -m data_prep lsun church_outdoor_train_lmdb data/churches.lmdb --size 64
"""

import argparse
from dataclasses import dataclass

from PIL import Image

from data_prep.common import Job
from eftgan.data.images import decode_rgb
from eftgan.data.stores import lsun_keys, read_entry

SIZE, EXACT = 64, False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """LSUN has no options of its own."""


def plan(args: argparse.Namespace) -> Job:
    return Job([(key, None) for key in lsun_keys(args.source)], LoadEntry(args.source))


@dataclass(frozen=True)
class LoadEntry:
    """Decode the image behind one key."""

    path: str

    def __call__(self, key: bytes) -> Image.Image:
        return decode_rgb(read_entry(self.path, key))
