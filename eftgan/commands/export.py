"""`eftgan export`: one task, or all of them, as a program that needs none of this package."""

import argparse
from pathlib import Path

HELP = "Write a task's merged network as a plain PyTorch program or as ONNX."
EXAMPLES = """\
eftgan export runs/shapes --task discs --out discs.pt2
eftgan export runs/shapes --task discs --out discs.onnx               for onnxruntime, browsers, phones
eftgan export runs/shapes-classes --task all --out classes.onnx       all tasks; the task's number is an input
eftgan export runs/shapes --task discs --out discs.safetensors"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or hf:USER/NAME")
    parser.add_argument("--task", required=True, help="a task's name or number, or all: its number is an input then")
    parser.add_argument(
        "--out", type=Path, required=True, help="NAME.pt2 (torch.export), NAME.onnx, or NAME.safetensors (a GAN's task)"
    )


def run(args: argparse.Namespace) -> None:
    """Write the network of one task, or of all, without any of this package's classes."""
    from eftgan.kinds import open_run

    everything = args.task == "all"
    saved = open_run(args.run, task=None if everything else args.task)
    saved.require_trained()
    for line in saved.export("all" if everything else saved.trained[saved.index(args.task)], args.out):
        print(line)
