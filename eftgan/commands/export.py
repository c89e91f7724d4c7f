"""`eftgan export`: one task as a program that needs none of this package."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from eftgan.gan.run import GanRun

HELP = "Write a task's merged generator as a plain PyTorch program."
EXAMPLES = """\
eftgan export runs/shapes --task discs --out discs.pt2
eftgan export runs/shapes --task discs --out discs.safetensors"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--task", required=True, help="a task's name or number")
    parser.add_argument("--out", type=Path, required=True, help="NAME.pt2 (torch.export) or NAME.safetensors")


def run(args: argparse.Namespace) -> None:
    """Write the generator of one task without any of this package's classes."""
    from eftgan.gan.export import export_generator
    from eftgan.kinds import open_run

    saved = cast("GanRun", open_run(args.run, "gan"))
    for line in export_generator(saved, saved.trained[saved.index(args.task)], args.out):
        print(line)
