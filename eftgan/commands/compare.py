"""`eftgan compare`: several methods on one sequence, with the same first task, steps and seeds, and one report."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eftgan.commands import command_line, exit_stopped, is_alone, is_first
from eftgan.errors import UserError
from eftgan.studies.launching import add_launch_arguments, launch, without_launch

if TYPE_CHECKING:
    from eftgan.studies.comparison import Comparison

HELP = "Train several methods on one sequence; one report."
EXAMPLES = """\
eftgan compare gan/shapes --methods finetune,ewc,mergan,eft,eft-plus --seeds 0,1 --out runs/compare
eftgan compare classifier/shapes --methods finetune,lwf,ewc,eft --out runs/compare-classes
eftgan compare my.yaml --methods finetune,eft training.steps=2000
eftgan compare my.yaml --methods eft,runs/tune/tuned.yaml     a recipe by its file, as eftgan tune writes it
eftgan compare shapes_ablations --methods eft,no_transfer,parallel --seeds 0,1,2
eftgan compare gan/shapes --seeds 0,1 --worker      start it several times, on any machines: they share the runs
eftgan compare gan/shapes --seeds 0,1 --local 4     starts four such workers here
eftgan compare gan/shapes --seeds 0,1 --list        a command per run, for GNU parallel or a queue"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="X.yaml, or a name such as gan/shapes; recipes are the files X/RECIPE.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the config")
    parser.add_argument("--methods", help="methods or recipes, with commas (default: the usual ones of the kind)")
    parser.add_argument("--seeds", default="0", help="for example 0,1,2")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="folder of the runs and the report")
    parser.add_argument(
        "--worker", action="store_true", help="train what no other worker on this folder trains, until all is finished"
    )
    parser.add_argument("--only", metavar="RUN", help="as a worker, one run (eft-seed0) and the first task it needs")
    parser.add_argument("--list", action="store_true", help="print a command for each run, and train nothing")
    add_launch_arguments(parser)


def more_help(words: Sequence[str]) -> str:
    """What is compared where no methods are named."""
    from eftgan.kinds import KINDS, load_kind

    usual = [f"  {kind}: {', '.join(load_kind(kind).usual_methods)}" for kind in KINDS]
    return "\n".join(["the usual methods:", *usual])


def run(args: argparse.Namespace) -> None:
    """Run what is not finished yet, then write one report."""
    methods, seeds = parse_methods(args.methods), parse_seeds(args.seeds)
    from eftgan.kinds import find_config
    from eftgan.studies.comparison import plan_comparison
    from eftgan.training.launch import meet, part
    from eftgan.training.stopping import Stopped

    with meet().agreeing():
        comparison = plan_comparison(find_config(args.config), args.overrides, methods, seeds, args.out)
    if args.list:
        words = [word for word in without_launch(args.words) if word not in ("--list", "--worker")]
        print(*(command_line([*words, "--only", job.name]) for job in comparison.all_jobs), sep="\n")
        return
    if launch(args, ["--worker"], lambda: len(comparison.unfinished)):
        if not comparison.unfinished:
            print(comparison.page)
        return
    try:
        paths = _train(comparison, args)
        part()
    except Stopped as stopped:
        exit_stopped(str(stopped), args.command_line, stopped.signal)
    if paths:
        print(*paths, sep="\n")


def _train(comparison: "Comparison", args: argparse.Namespace) -> list[Path]:
    """The files of the report, where this process had to write one."""
    if not (args.worker or args.only):
        comparison.train(args.command_line)
        return comparison.report() if is_first() else []
    if not is_alone():
        raise UserError("--worker: a worker is one process; start several, or leave it out to train in all of these")
    comparison.work(args.command_line, args.only)
    if left := comparison.unfinished:
        print(f"{len(left)} of {len(comparison.all_jobs)} runs are not finished yet: {', '.join(left)}")
        return []
    return comparison.report_once()


def parse_methods(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",")]
    if names is not None and not all(names):
        raise UserError(f"--methods {text!r}: give names with commas between them, for example finetune,eft")
    return names


def parse_seeds(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        raise UserError(f"--seeds {text[:60]}: give whole numbers, for example 0,1,2")
    return [int(word) for word in words]
