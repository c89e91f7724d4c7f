"""the cat classes of ImageNet

Where:    ImageNet ILSVRC 2012, https://image-net.org/download (needs an account): ILSVRC2012_img_train.tar.
Layout:   SOURCE/train/<synset>/*.JPEG, SOURCE/<synset>/*.JPEG, or SOURCE/<synset>.tar as it comes.
          Missing synsets are told, and refused only where none is there.
Example:  python -m data_prep cats imagenet data/cats.lmdb --size 64
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from eftgan.data.conversion import Job
from eftgan.data.images import decode_rgb
from eftgan.data.trees import TARS, Tree, open_tree
from eftgan.errors import UserError

SIZE, EXACT = 64, False
CATS = {
    "n02123045": "tabby",
    "n02123159": "tiger cat",
    "n02123394": "Persian cat",
    "n02123597": "Siamese cat",
    "n02124075": "Egyptian cat",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cats = ", ".join(f"{synset} {name}" for synset, name in CATS.items())
    parser.add_argument("--synsets", nargs="+", default=list(CATS), metavar="WNID", help=f"default: {cats}")


def plan(args: argparse.Namespace) -> Job:
    root = Path(args.source).expanduser()
    if not root.is_dir():
        raise UserError(f"no folder at {root}; give the ImageNet folder that holds train/")
    trees = {synset: tree for synset in args.synsets if (tree := _find(root, synset))}
    missing = [synset for synset in args.synsets if synset not in trees]
    if not trees:
        raise UserError(f"{root} has none of the synsets {', '.join(missing)}; expected train/<synset>/*.JPEG")
    if missing:
        print(f"note: {root} has no {', '.join(missing)}; going on without", file=sys.stderr)
    items = [((f"{synset}/{name}", synset, name), None) for synset in trees for name in trees[synset].images()]
    return Job(items, LoadFromSynset(trees))


def _find(root: Path, synset: str) -> Tree | None:
    places = (folder / f"{synset}{ending}" for ending in ("", *TARS) for folder in (root / "train", root))
    return next((open_tree(place) for place in places if place.exists()), None)


@dataclass(frozen=True)
class LoadFromSynset:
    """Decode one image of one synset's tree."""

    trees: dict[str, Tree]

    def __call__(self, item: tuple[str, str, str]) -> Image.Image:
        _, synset, name = item
        return decode_rgb(self.trees[synset].read(name))
