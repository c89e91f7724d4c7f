"""`eftgan tune`: search for settings of a config, on images that no reported score is measured on."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from eftgan.commands import exit_stopped, is_alone
from eftgan.commands.compare import parse_seeds
from eftgan.errors import UserError
from eftgan.studies.launching import add_launch_arguments, launch

if TYPE_CHECKING:
    from eftgan.studies.search import Search

HELD_OUT = 0.2
HELP = "Search for the settings of a config that do best on held-out images or on one task."
EXAMPLES = """\
eftgan tune gan/shapes method.later_rate=1,2,4,8 --on stripes --metric KID --trials 8
eftgan tune my.yaml training.learning_rate=1e-4..1e-2:log method.later_rate=1,2,4 --trials 20 --seeds 0,1
eftgan tune classifier/shapes method=ewc method.strength=1,10,100,1000 --metric accuracy-TIL
eftgan tune gan/shapes method.later_rate=1,2,4,8 --on stripes --local 4    four processes share the trials"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="X.yaml, or a name such as gan/shapes or gan/shapes/eft-plus")
    parser.add_argument(
        "settings",
        nargs="+",
        metavar="key=values",
        help="what to search over, key=1,2,4 or key=LOW..HIGH or key=LOW..HIGH:log; key=value holds for all trials",
    )
    parser.add_argument("--on", metavar="TASKS", help="judge on these tasks, with commas (default: on all)")
    parser.add_argument("--metric", help="what to judge by (default: KID, of a classifier accuracy-CIL)")
    parser.add_argument("--trials", type=int, default=20, help="at most so many; further ones can be added later")
    parser.add_argument("--seeds", default="0", help="train each trial with these, and judge by the mean")
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help=f"of the training images, to judge on (default: {HELD_OUT}; a GAN's with --on: 0, all images of the task)",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/tune"), help="folder of the trials, table and recipe")
    parser.add_argument(
        "--cache", type=Path, help="of a GAN: statistics of real images (default: .statistics in --out)"
    )
    add_launch_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Run the trials that are missing, and say what was found."""
    if not is_alone():
        raise UserError("eftgan tune runs in one process; start it several times, and the processes share the trials")
    search = plan(args)
    search.check()
    from eftgan.training.stopping import Stopped

    if launch(args, [], lambda: search.left(args.trials)) and args.slurm:
        return
    try:
        best = search.run(args.trials)  # behind local workers nothing is left to train
    except Stopped as stopped:
        exit_stopped(str(stopped), args.command_line, stopped.signal)
    print((args.out / "trials.md").read_text())
    print(f"chosen: trial {best.number}; {search.recipe}")
    print(f"next:\n  eftgan compare {args.config} --methods {search.recipe},... --seeds 1,2,3")


def plan(args: argparse.Namespace) -> "Search":
    """The search that the words ask for, checked as far as no image is needed."""
    from eftgan.config import build, read_yaml
    from eftgan.kinds import find_config, kind_of_config
    from eftgan.studies.comparison import with_overrides
    from eftgan.studies.search import Question, Search
    from eftgan.studies.space import parse_words

    axes, fixed = parse_words(args.settings)
    if not axes:
        raise UserError("nothing to search over; give a key several values, for example method.later_rate=1,2,4")
    if args.trials < 1:
        raise UserError(f"--trials {args.trials}: at least one")
    config = find_config(args.config)
    before, data = read_yaml(config), with_overrides(read_yaml(config), fixed)
    kind = kind_of_config(data, str(config))
    if args.cache is not None and kind.name != "gan":
        raise UserError(
            f"--cache {args.cache}: keeps statistics of a GAN's images; a {kind.name} has none, leave it out"
        )
    metric = args.metric or kind.tuning_metrics[0]
    if metric not in kind.tuning_metrics:
        raise UserError(f"--metric {metric}: a {kind.name} is judged by one of {', '.join(kind.tuning_metrics)}")
    experiment = build(kind.experiment_type, with_overrides(read_yaml(config), fixed), str(config))
    experiment.check_given(fixed)
    names = experiment.task_names
    on = [task.strip() for task in args.on.split(",")] if args.on else names
    unknown = [task for task in on if task not in names]
    if unknown:
        raise UserError(f"--on {args.on}: no task {unknown[0]!r}; there are: {', '.join(names)}")
    share = _held_out(args, kind.name)
    words = [word for word in args.settings if word not in fixed]
    question = Question(data, words, metric, on, parse_seeds(args.seeds), share)
    return Search(kind, config, before, question, axes, args.out, args.command_line, args.cache)


def _held_out(args: argparse.Namespace, kind: str) -> float:
    """The share to judge on. A GAN that is judged on a task that is not reported may use all of its images."""
    whole = kind == "gan" and args.on is not None
    share = args.held_out if args.held_out is not None else (0.0 if whole else HELD_OUT)
    if not 0 <= share < 1 or (share == 0 and not whole):
        raise UserError(
            f"--held-out {share:g}: a share between 0 and 1"
            + ("" if whole else "; judging on test images, or on those that were trained on, would be no test")
        )
    return share
