"""birds: Caltech-UCSD Birds-200-2011, cropped round the bird

Where:    https://data.caltech.edu/records/65de6-vp158 (CUB_200_2011.tgz, as it comes or unpacked).
Layout:   SOURCE/{images.txt,bounding_boxes.txt,train_test_split.txt} and SOURCE/images/<class>/*.jpg
          The crop is a square of half side r = 0.75 max(w, h) round the box's centre, cut off at the border.
Example:  python -m data_prep cub CUB_200_2011 data/birds.lmdb --size 64
"""

import argparse
from dataclasses import dataclass

from PIL import Image

from eftgan.data.conversion import Job
from eftgan.data.images import decode_rgb
from eftgan.data.trees import Tree, open_tree
from eftgan.errors import UserError

SIZE, EXACT = 64, False
Box = tuple[float, float, float, float]  # left, top, width, height in pixels


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split", choices=("train", "test", "all"), default="train", help="by train_test_split.txt; default train"
    )


def plan(args: argparse.Namespace) -> Job:
    tree = open_tree(args.source)
    top = tree.prefix_of("images.txt")
    paths = _table(tree, top + "images.txt", 1)
    boxes = _table(tree, top + "bounding_boxes.txt", 4)
    splits = _table(tree, top + "train_test_split.txt", 1)
    wanted = {"train": ("1",), "test": ("0",), "all": ("0", "1")}[args.split]
    items = []
    for key, (path,) in paths.items():
        if key not in boxes or key not in splits:
            raise UserError(f"{tree.path}: image {key} of images.txt has no bounding box or no split")
        if splits[key][0] in wanted:
            items.append(((f"{top}images/{path}", _box(tree, boxes[key])), None))
    return Job(items, LoadBird(tree))


def _table(tree: Tree, name: str, columns: int) -> dict[str, list[str]]:
    """Lines of `id value ...` by id."""
    table = {}
    for number, line in enumerate(tree.text(name).splitlines(), 1):
        if line.strip():
            key, *values = line.split(None, columns)
            if len(values) != columns:
                raise UserError(f"{tree.path}/{name}, line {number}: expected an id and {columns} values")
            table[key] = values
    return table


def _box(tree: Tree, values: list[str]) -> Box:
    try:
        left, top, width, height = map(float, values)
    except ValueError as error:
        raise UserError(f"{tree.path}/bounding_boxes.txt: {' '.join(values)} is not a box of numbers") from error
    return left, top, width, height


def crop_round(image: Image.Image, box: Box) -> Image.Image:
    """The square of half side r = 0.75 max(w, h) round the box's centre, as far as the image goes."""
    left, top, width, height = box
    centre_x, centre_y = int(left + width / 2), int(top + height / 2)
    r = int(0.75 * max(width, height))
    edges = (
        max(0, centre_x - r),
        max(0, centre_y - r),
        min(image.width, centre_x + r),
        min(image.height, centre_y + r),
    )
    if edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise ValueError(f"the bounding box {box} lies outside the image of {image.width}x{image.height}")
    return image.crop(edges)


@dataclass(frozen=True)
class LoadBird:
    """Decode one image and crop it round its bird."""

    tree: Tree

    def __call__(self, item: tuple[str, Box]) -> Image.Image:
        name, box = item
        return crop_round(decode_rgb(self.tree.read(name)), box)
