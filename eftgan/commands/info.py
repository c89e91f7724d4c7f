"""`eftgan info`: what a run folder holds."""

import argparse
from pathlib import Path

HELP = "Show a run's tasks, growth, steps and digests."
EXAMPLES = """\
eftgan info runs/shapes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the folder of a run")


def run(args: argparse.Namespace) -> None:
    """Print what a run folder holds."""
    from eftgan.kinds import open_run

    print(open_run(args.run).describe())
