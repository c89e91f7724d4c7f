"""`eftgan sample`: images of a task, of a mix of tasks, or of a way between them."""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError
from eftgan.names import BASE_NAME

if TYPE_CHECKING:
    from torch import Tensor

    from eftgan.gan.latent import Subject
    from eftgan.gan.run import GanRun

HELP = "Draw images of a task, of a mix of tasks, or on the way between them."
EXAMPLES = """\
eftgan sample runs/shapes --task discs --n 64 --seed 7 --out grid.png
eftgan sample runs/shapes --task all --out all.png          one row per task
eftgan sample runs/shapes --task 2 --after 4                task 2 as it was after task 4
eftgan sample runs/shapes --task discs --n 500 --images discs/
eftgan sample hf:USER/NAME --task discs                     a run on the Hub: only what this task needs is fetched
eftgan sample runs/shapes --task checks --strength 0.5      halfway from the base network to the task
eftgan sample runs/shapes --task base                       the base network itself
eftgan sample runs/shapes --mix discs:0.3,checks:0.7        between two tasks
eftgan sample runs/shapes --task discs --interpolate 16 --out discs.gif
eftgan sample runs/shapes --across discs,checks,stripes --interpolate 9 --out way.webp"""

ANIMATED = (".gif", ".webp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("run", metavar="RUN", help="a run's folder, or what was kept or fetched of it; or hf:USER/NAME")
    option("--task", help=f"a task's name or number, {BASE_NAME}, or all: one row per task (default: all)")
    option("--n", type=int, default=None, help="how many images (64; of all: 8 per task; of a way: 4)")
    option("--seed", type=int, default=0, help="the same seed gives the same images on one device")
    option("--after", help="as the generator was after this task (default: the last one)")
    option("--truncation", type=float, help="keep the noise within this many deviations, e.g. 1.5")
    strength = "how much of what the task added: 1 is the task, 0 the base network (neutral transforms, normalisation "
    option("--strength", type=float, help=f"{strength} of the first task), more than 1 overdoes it")
    mix = "in place of --task: the weighted mean of what several tasks own, with the noise of the first one; weights "
    option("--mix", metavar="A:0.3,B:0.7", help=f"{mix} are divided by their sum; {BASE_NAME}: the base network")
    way = "so many images on the way from one noise to another: side by side in a PNG, there and back in a GIF or WebP"
    option("--interpolate", type=int, metavar="FRAMES", help=way)
    across = "with --interpolate: keep the noise and go from task to task, so many frames each; all: through all tasks"
    option("--across", metavar="A,B,...", help=across)
    out = "the grid to write (default: samples.png); with --interpolate NAME.gif and NAME.webp as well"
    option("--out", type=Path, metavar="NAME.png", help=out)
    option("--images", type=Path, metavar="DIR", help="write single PNGs, or the frames of a way, into this folder")


def run(args: argparse.Namespace) -> None:
    """Write a grid, a strip or an animation, and single images if asked."""
    _check(args)
    from eftgan.gan.latent import draw_frames, tasks_drawn
    from eftgan.kinds import open_run

    saved = cast("GanRun", open_run(args.run, "gan", task=_only_task(args)))
    saved.require_trained()
    after = saved.index(args.after) if args.after else len(saved.trained) - 1
    subjects = _subjects(saved, after, args)
    in_rows = _of_tasks(args) == "all"
    count = args.n or ((1 if in_rows else 4) if args.interpolate else (8 if in_rows else 64))
    generator = saved.generator(after, tasks_drawn(saved, subjects.values()))
    way = {"truncation": args.truncation, "steps": args.interpolate}
    drawn = {name: draw_frames(saved, generator, each, count, args.seed, **way) for name, each in subjects.items()}
    columns = count if in_rows and not args.interpolate else min(8, count)
    if args.images:
        written = _write_singles(drawn, columns, args)
        print(f"{written} {'frames' if args.interpolate else 'images'} in {args.images}")
    if args.out or not args.images:
        out = args.out or Path("samples.png")
        _write_picture(drawn, out, columns, args.interpolate is not None)
        print(f"{out}: {_described(args) or ', '.join(subjects)} after {saved.trained[after]}, seed {args.seed}")


def _seen(saved: "GanRun", after: int) -> list[str]:
    """The tasks learned by then whose files are here; one line names the others."""
    seen, present = saved.trained[: after + 1], set(saved.present)
    if absent := [task for task in seen if task not in present]:
        print(f"without {', '.join(absent)}: their files are not in {saved.folder.path}")
    return [task for task in seen if task in present]


def _only_task(args: argparse.Namespace) -> str | None:
    """The task that is all that is needed of a run; none where that may be more."""
    alone = args.mix is None and args.across is None and args.strength is None
    return args.task if alone and args.task not in ("all", BASE_NAME) else None  # the base is drawn with the first


def _of_tasks(args: argparse.Namespace) -> str | None:
    """What --task says, or would say by itself."""
    return None if args.mix or args.across else args.task or "all"


def _described(args: argparse.Namespace) -> str:
    """What a mix, a way or a strength is of; empty where the names of tasks say it all."""
    what = f"mix {args.mix}" if args.mix else f"across {args.across}" if args.across else ""
    if args.strength is None:
        return what
    return f"{what or args.task or 'all'} at strength {args.strength:g}"


def _subjects(saved: "GanRun", after: int, args: argparse.Namespace) -> "dict[str, Subject]":
    """What is drawn, by the name that files of single images get."""
    from eftgan.adapters import BASE, at_strength
    from eftgan.gan.latent import Subject

    saved.require_trained()
    trained = saved.trained
    seen = trained[: after + 1]

    def name_of(word: str) -> str | None:
        if word == BASE_NAME and word not in trained:
            return BASE
        if (name := trained[saved.index(word)]) not in seen:
            raise UserError(f"{word}: not learned yet after {trained[after]}; leave --after out")
        return name

    def subject(*stops: Mapping[str | None, float]) -> Subject:
        named = next((name for shares in stops for name in shares if name is not BASE), seen[0])
        strength = 1.0 if args.strength is None else args.strength
        return Subject(named, tuple(stops if strength == 1 else (at_strength(each, strength) for each in stops)))

    if args.mix:
        shares: dict[str | None, float] = {}
        for word, weight in parse_mix(args.mix):
            shares[name_of(word)] = shares.get(name_of(word), 0.0) + weight
        return {"mix": subject(shares)}
    if args.across:
        stops = seen if args.across == "all" else [name_of(word.strip()) for word in args.across.split(",")]
        if len(stops) < 2:
            raise UserError(f"--across {args.across}: a way needs at least two tasks, for example A,B")
        return {"way": subject(*({name: 1.0} for name in stops))}
    tasks = _seen(saved, after) if _of_tasks(args) == "all" else [name_of(args.task)]
    return {BASE_NAME if task is BASE else task: subject({task: 1.0}) for task in tasks}


def parse_mix(text: str) -> list[tuple[str, float]]:
    """Names and weights of `A:0.3,B:0.7`."""
    pairs = []
    for piece in text.split(","):
        name, colon, number = piece.strip().rpartition(":")
        try:
            weight = float(number) if colon and name else math.nan
        except ValueError:
            weight = math.nan
        if not math.isfinite(weight):
            raise UserError(f"--mix {text}: {piece.strip()!r} is not NAME:NUMBER; write it like birds:0.3,cats:0.7")
        pairs.append((name.strip(), weight))
    if (total := math.fsum(weight for _, weight in pairs)) <= 0:
        raise UserError(f"--mix {text}: the weights sum up to {total:g}; their sum must be above 0")
    return pairs


def _write_singles(drawn: "dict[str, Tensor]", columns: int, args: argparse.Namespace) -> int:
    """Every image as a file, or every frame of a way; returns how many."""
    import torch

    from eftgan.data.grid import save_png, tile

    if args.interpolate:
        frames = torch.cat(list(drawn.values()), dim=1)
        for index, frame in enumerate(frames):
            save_png(tile(frame, columns), args.images / f"frame-{index:05d}.png")
        return len(frames)
    singles = [(name, index, image) for name, frames in drawn.items() for index, image in enumerate(frames[0])]
    for name, index, image in singles:
        save_png(image, args.images / f"{name}-{args.seed}-{index:05d}.png")
    return len(singles)


def _write_picture(drawn: "dict[str, Tensor]", out: Path, columns: int, is_way: bool) -> None:
    """A grid; a way as a strip, every image a row, or as an animation."""
    import torch

    from eftgan.data.animation import save_animation
    from eftgan.data.grid import save_grid, tile

    frames = torch.cat(list(drawn.values()), dim=1)  # (frames, images, 3, S, S)
    if out.suffix.lower() in ANIMATED:
        save_animation([tile(frame, columns) for frame in frames], out)
    else:
        save_grid(frames.transpose(0, 1).flatten(0, 1), out, len(frames) if is_way else columns)


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot be drawn before anything slow is done."""
    if args.n is not None and args.n < 1:
        raise UserError(f"--n {args.n}: at least one image")
    if args.truncation is not None and not (args.truncation > 0 and math.isfinite(args.truncation)):
        raise UserError(f"--truncation {args.truncation}: give a positive number of deviations")
    if args.strength is not None and not math.isfinite(args.strength):
        raise UserError(f"--strength {args.strength}: give a number; 0 is the base network, 1 the task")
    if args.interpolate is not None and args.interpolate < 2:
        raise UserError(f"--interpolate {args.interpolate}: a way has at least 2 frames, its two ends")
    if len(chosen := [key for key in ("task", "mix", "across") if getattr(args, key) is not None]) > 1:
        raise UserError(f"--{chosen[0]} and --{chosen[1]} both say what is drawn; give one of them")
    if args.across and args.interpolate is None:
        raise UserError("--across is a way: say in how many frames, for example --interpolate 9")
    if args.mix is not None:
        parse_mix(args.mix)
    if args.out is not None:
        _check_out(args.out, args.interpolate is not None)


def _check_out(out: Path, is_way: bool) -> None:
    if out.suffix.lower() in ANIMATED and not is_way:
        raise UserError(f"--out {out}: only a way is an animation; add --interpolate 16, or name it {_png(out)}")
    if out.suffix.lower() not in (".png", *ANIMATED):
        also = ", a GIF or a WebP" if is_way else ""
        raise UserError(f"--out {out}: a grid is a PNG picture{also}; name it {_png(out)}")


def _png(out: Path) -> str:
    return out.with_suffix(".png").name
