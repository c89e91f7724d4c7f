"""`eftgan classify`: what an image shows."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.classifier.run import ClassifierRun

HELP = "Say what an image shows, by a trained classifier."
EXAMPLES = """\
eftgan classify runs/shapes-classes --image photo.jpg
eftgan classify runs/shapes-classes --image photo.jpg --task 2 --top 1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--image", type=Path, required=True, help="a picture of any size")
    parser.add_argument("--task", help="a task's name or number (default: inferred by the least entropy)")
    parser.add_argument("--top", type=int, default=5, help="how many classes to show")


def run(args: argparse.Namespace) -> None:
    """Print the most probable classes of one image."""
    import torch

    from eftgan.data.images import decode_rgb, fit_square, to_chw
    from eftgan.kinds import open_run

    saved = cast("ClassifierRun", open_run(args.run, "classifier"))
    saved.index(args.task or 1)
    try:
        image = decode_rgb(args.image.read_bytes())
    except Exception as error:  # decoders raise whatever a damaged file makes of them
        raise UserError(f"{args.image}: cannot be read as an image ({error})") from error
    square = torch.from_numpy(to_chw(fit_square(image, saved.experiment.network.size)))
    task, ranked = saved.classify(square, args.task)
    print(f"task {task}{'' if args.task else ' (inferred)'}")
    for name, share in ranked[: max(1, args.top)]:
        print(f"  {share:6.1%}  {name}")
