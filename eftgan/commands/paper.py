"""`eftgan paper`: the tables and figures of the EFT paper, ours beside the paper's."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eftgan.commands import exit_stopped, is_alone
from eftgan.commands.compare import parse_seeds
from eftgan.errors import UserError
from eftgan.studies.launching import add_launch_arguments, launch

if TYPE_CHECKING:
    from eftgan.studies.paper.plan import Plan
    from eftgan.studies.paper.protocols import Settings
    from eftgan.studies.paper.tables import Paper

HELP = "Tables and figures of the EFT paper: train their rows, ours beside the paper's."
EXAMPLES = """\
eftgan paper                                         the paper's tables and figures, and how far each is here
eftgan paper capacity --budget 0.1 --out runs/paper  a tenth of the epochs; the same command goes on, or joins in
eftgan paper capacity margin --seeds 0,1,2 --local 4
eftgan paper cifar100-10 --small --budget 0.04 --tasks 5 --rows finetune,lwf,eft
eftgan paper imagenet --data imagenet=/data/ILSVRC2012 --seeds 0,1,2
eftgan paper margin --protocol authors               as the authors' notebooks have it
eftgan paper --page                                  write the page of what is there, and train nothing"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="what to train (default: list all)")
    parser.add_argument("--budget", type=float, default=1.0, help="share of the epochs, or of a GAN's epochs or steps")
    parser.add_argument("--seeds", default="0", help="for example 0,1,2; a seed is an order of the classes, too")
    parser.add_argument("--tasks", type=int, metavar="N", help="only the first N tasks")
    parser.add_argument("--limit", type=int, metavar="N", help="use N images of every set")
    parser.add_argument("--rows", help="only these rows, by the names of their recipes (see the list of one table)")
    parser.add_argument("--small", action="store_true", help="the table's form for a CPU")
    parser.add_argument("--protocol", metavar="NAMES", help="settings by name, with commas: authors, rotation, ...")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=PATH", help="where a set is (default: data/NAME)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="folder of the runs and the page")
    parser.add_argument("--list", action="store_true", help="show how far the rows are, and train nothing")
    parser.add_argument("--page", action="store_true", help="write the page of what is there, and train nothing")
    add_launch_arguments(parser)


def more_help(words: Sequence[str]) -> str:
    """The tables and the protocols."""
    from eftgan.studies.paper.tables import load_paper

    paper = load_paper()
    tables = [f"  {table.name:22} {table.place}: {table.title}" for table in paper.tables]
    protocols = [f"  {each.name:22} {each.about}" for each in paper.protocols]
    keys = "TABLE may be followed by key=value, any key of the configs: training.batch=32"
    return "\n".join(["tables:", *tables, "", "protocols:", *protocols, "", keys])


def run(args: argparse.Namespace) -> None:
    """List, or train what is missing and write the page."""
    names = [word for word in args.tables if "=" not in word]
    seeds, rows = parse_seeds(args.seeds), args.rows.split(",") if args.rows else None
    from eftgan.studies.paper.listing import list_rows, list_tables
    from eftgan.studies.paper.page import write_page
    from eftgan.studies.paper.plan import Plan, recorded_plans
    from eftgan.studies.paper.tables import load_paper

    paper = load_paper()
    settings = _settings(args, paper)
    plans = [Plan(paper, paper.table(name), settings, args.out) for name in dict.fromkeys(names)]
    if args.page:
        if not (found := recorded_plans(paper, args.out)):
            raise UserError(f"{args.out}: no runs of the paper's tables there yet")
        print(*write_page(found, args.out), sep="\n")
    elif args.list or not plans:
        print("\n\n".join(map(list_rows, plans)) if plans else list_tables(paper, settings, args.out))
    else:
        _train(args, plans, rows, seeds)


def _train(args: argparse.Namespace, plans: "Sequence[Plan]", rows: list[str] | None, seeds: list[int]) -> None:
    from eftgan.studies.paper.page import write_page
    from eftgan.studies.paper.plan import named_rows, recorded_plans
    from eftgan.training.stopping import Stopped

    if not is_alone():
        raise UserError("eftgan paper runs in one process; start it several times, and the processes share the runs")
    chosen = zip(plans, named_rows(plans, rows), strict=True)
    comparisons = [plan.comparison(plan.trainable(own), seeds) for plan, own in chosen]
    for plan in plans:
        plan.record()
    if launch(args, [], lambda: sum(len(each.unfinished) for each in comparisons)) and args.slurm:
        return
    failed = []
    try:
        for comparison in comparisons:  # behind local workers nothing is left to train
            try:
                comparison.work(args.command_line)
                comparison.report_once()
            except UserError as error:  # the other tables are trained all the same
                failed.append(str(error))
    except Stopped as stopped:
        exit_stopped(str(stopped), args.command_line, stopped.signal)
    finally:  # whatever ended it: what is finished is shown
        files = write_page(recorded_plans(plans[0].paper, args.out), args.out)
    print(*files, sep="\n")
    if failed:
        raise UserError("\n".join(failed))


def _settings(args: argparse.Namespace, paper: "Paper") -> "Settings":
    """What was asked for, checked."""
    from eftgan.studies.paper.protocols import Settings

    if not 0 < args.budget <= 1:
        raise UserError(f"--budget {args.budget:g}: a share of the epochs, above 0 and up to 1")
    for option in ("tasks", "limit"):
        if (value := getattr(args, option)) is not None and value < 1:
            raise UserError(f"--{option} {value}: at least one")
    places = dict(word.partition("=")[::2] for word in args.data)
    if unknown := [name for name, place in places.items() if name not in paper.data or not place]:
        raise UserError(f"--data {unknown[0]}: give NAME=PATH; there are: {', '.join(paper.data)}")
    protocol = tuple(sorted(each.name for each in paper.protocol(args.protocol.split(",")))) if args.protocol else ()
    words = tuple(word for word in args.tables if "=" in word)
    return Settings(args.budget, args.tasks, args.limit, args.small, protocol, words, places)
