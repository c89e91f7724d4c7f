"""`eftgan sample`: images of a task, as one picture or as single files."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError

if TYPE_CHECKING:
    from eftgan.gan.run import GanRun

HELP = "Draw images of a task."
EXAMPLES = """\
eftgan sample runs/shapes --task discs --n 64 --seed 7 --out grid.png
eftgan sample runs/shapes --task all --out all.png          one row per task
eftgan sample runs/shapes --task 2 --after 4                task 2 as it was after task 4
eftgan sample runs/shapes --task discs --n 500 --images discs/
eftgan sample hf:USER/NAME --task discs                     a run on the Hub: only what this task needs is fetched"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, or what was kept or fetched of it; or hf:USER/NAME")
    parser.add_argument("--task", default="all", help="a task's name or number, or all: one row per task")
    parser.add_argument("--n", type=int, default=None, help="how many images (64; with all: 8 per task)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same images on one device")
    parser.add_argument("--after", help="as the generator was after this task (default: the last one)")
    parser.add_argument("--truncation", type=float, help="keep the noise within this many deviations, e.g. 1.5")
    parser.add_argument("--out", type=Path, metavar="NAME.png", help="the grid to write (default: samples.png)")
    parser.add_argument("--images", type=Path, metavar="DIR", help="write single PNGs into this folder as well")


def run(args: argparse.Namespace) -> None:
    """Write a grid of one task or of all, and single images if asked."""
    everything = args.task == "all"
    count = (8 if everything else 64) if args.n is None else args.n
    _check(count, args.truncation, args.out)
    import torch

    from eftgan.data.grid import save_grid, save_png
    from eftgan.kinds import open_run

    saved = cast("GanRun", open_run(args.run, "gan", task=None if everything else args.task))
    saved.require_trained()
    after = saved.index(args.after) if args.after else len(saved.trained) - 1
    tasks = _seen(saved, after) if everything else [saved.trained[saved.index(args.task)]]
    if tasks[-1] not in saved.trained[: after + 1]:
        raise UserError(f"--task {args.task}: not learned yet after {saved.trained[after]}; leave --after out")
    generator = saved.generator(after, tasks)
    drawn = {task: saved.sample(task, count, args.seed, generator, args.truncation) for task in tasks}
    if args.images:
        for task, images in drawn.items():
            for index, image in enumerate(images):
                save_png(image, args.images / f"{task}-{args.seed}-{index:05d}.png")
        print(f"{count * len(tasks)} images in {args.images}")
    if args.out or not args.images:
        out = args.out or Path("samples.png")
        columns = count if everything else min(8, count)
        save_grid(torch.cat(list(drawn.values())), out, columns)
        print(f"{out}: {', '.join(tasks)} after {saved.trained[after]}, seed {args.seed}")


def _seen(saved: "GanRun", after: int) -> list[str]:
    """The tasks learned by then whose files are here; one line names the others."""
    seen, present = saved.trained[: after + 1], set(saved.present)
    if absent := [task for task in seen if task not in present]:
        print(f"without {', '.join(absent)}: their files are not in {saved.folder.path}")
    return [task for task in seen if task in present]


def _check(count: int, truncation: float | None, out: Path | None) -> None:
    """Refuse what cannot be drawn before anything slow is done."""
    if count < 1:
        raise UserError(f"--n {count}: at least one image")
    if truncation is not None and not (truncation > 0 and math.isfinite(truncation)):
        raise UserError(f"--truncation {truncation}: give a positive number of deviations")
    if out is not None and out.suffix.lower() != ".png":
        raise UserError(f"--out {out}: a grid is a PNG picture; name it {out.with_suffix('.png').name}")
