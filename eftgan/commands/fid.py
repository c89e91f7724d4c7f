"""`eftgan fid`: the distance between two folders of images."""

import argparse
from pathlib import Path

HELP = "Compare two folders of images: FID and KID."
EXAMPLES = """\
eftgan fid real_folder generated_folder                     like python -m pytorch_fid, the same figure
eftgan fid real_folder generated_folder --mixed-sizes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("real", type=Path, help="a folder of real images")
    parser.add_argument("fake", type=Path, help="a folder of generated images")
    parser.add_argument("--features", choices=("inception", "random"), default="inception", help="random is not FID")
    parser.add_argument("--weights", type=Path, help="Inception weights (default: searched for, see README)")
    parser.add_argument("--mixed-sizes", action="store_true", help="allow images of different sizes in one folder")


def run(args: argparse.Namespace) -> None:
    """Print the distances between two folders."""
    from eftgan.evaluation.features import load_extractor
    from eftgan.evaluation.folder_distance import compare_folders, require_folder

    for folder in (args.real, args.fake):
        require_folder(folder)  # before the network is loaded
    extractor = load_extractor(args.features, weights=args.weights)
    print(compare_folders(args.real, args.fake, extractor, mixed_sizes=args.mixed_sizes))
