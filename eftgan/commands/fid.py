"""`eftgan fid`: the distance between two folders of images."""

import argparse
from pathlib import Path

from eftgan.commands.evaluate import add_choice_of_metrics, chosen_metrics

HELP = "Compare two folders of images: FID and KID, or other metrics."
EXAMPLES = """\
eftgan fid real_folder generated_folder                     like python -m pytorch_fid, the same figure
eftgan fid real_folder generated_folder --metrics fid,kid,prdc,lpips
eftgan fid real_folder generated_folder --mixed-sizes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("real", type=Path, help="a folder of real images")
    parser.add_argument("fake", type=Path, help="a folder of generated images")
    add_choice_of_metrics(parser)
    parser.add_argument("--weights", type=Path, help="Inception weights (default: searched for, see README)")
    parser.add_argument("--mixed-sizes", action="store_true", help="allow images of different sizes in one folder")


def run(args: argparse.Namespace) -> None:
    """Print the distances between two folders."""
    chosen = chosen_metrics(args)
    from eftgan.evaluation.features import load_extractor
    from eftgan.evaluation.folder_distance import compare_folders, require_folder

    for folder in (args.real, args.fake):
        require_folder(folder)  # before the network is loaded
    extractors = [load_extractor(kind, weights=args.weights) for kind in chosen]
    for extractor in extractors:
        found = compare_folders(
            args.real, args.fake, extractor, metrics=chosen[extractor.kind], mixed_sizes=args.mixed_sizes
        )
        print(found, flush=True)
