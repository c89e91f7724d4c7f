"""`eftgan push`: share a run on the Hugging Face Hub."""

import argparse
from pathlib import Path

HELP = "Share a run on the Hugging Face Hub: weights, config, scores and a model card."
EXAMPLES = """\
eftgan push runs/shapes USER/NAME --licence mit
eftgan push runs/shapes USER/NAME --private                 only you can see it
eftgan push runs/shapes --folder shared                     look at what would be shared"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder")
    parser.add_argument("name", metavar="USER/NAME", nargs="?", help="the repository; it is made if it is not there")
    parser.add_argument("--private", action="store_true", help="make the repository a private one")
    parser.add_argument("--licence", "--license", help="the Hub's short name of one for the model card: mit, cc-by-4.0")
    parser.add_argument("--folder", type=Path, help="write the files into this new folder instead")


def run(args: argparse.Namespace) -> None:
    """Write the repository, or a folder with the same files."""
    from eftgan.errors import UserError
    from eftgan.hub.remote import HubRepo
    from eftgan.kinds import open_run

    if (args.name is None) == (args.folder is None):
        raise UserError("give USER/NAME, or --folder to write the same files there")
    if args.name is not None:
        HubRepo.parse(args.name)  # before the picture is drawn
    saved = open_run(args.run)
    if args.folder is not None:
        saved.save_pretrained(args.folder, licence=args.licence)
        print(f"{args.folder}: {len(saved.trained)} tasks, as they would be shared")
        return
    address = saved.push_to_hub(args.name, private=args.private, licence=args.licence)
    print(f"{address}: {len(saved.trained)} tasks. Load it with:")
    print("  import eftgan")
    print(f'  run = eftgan.load_run("{args.name}")')
    if not args.licence:
        print("The model card names no licence, so others may not use it; push again with --licence to change that.")
