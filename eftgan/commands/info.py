"""`eftgan info`: what a run folder holds."""

import argparse

HELP = "Show a run's tasks, growth, steps and digests."
EXAMPLES = """\
eftgan info runs/shapes
eftgan info hf:USER/NAME                  a run on the Hub"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or hf:USER/NAME")


def run(args: argparse.Namespace) -> None:
    """Print what a run folder holds."""
    from eftgan.kinds import open_run

    print(open_run(args.run).describe())
