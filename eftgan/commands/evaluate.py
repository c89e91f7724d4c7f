"""`eftgan evaluate`: FID and KID of a GAN run, where they are not measured yet."""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError
from eftgan.names import REAL
from eftgan.scores import UNCHANGED

if TYPE_CHECKING:
    from eftgan.data.processes import Processes
    from eftgan.gan.run import GanRun
    from eftgan.gan.scorer import RunScorer
    from eftgan.scores import Score

HELP = "Measure FID and KID of every seen task after every task."
EXAMPLES = """\
eftgan evaluate runs/shapes --fid-samples 5000              FID of every task after every task
eftgan evaluate runs/shapes --fid-samples 500 --reference-samples 500    a first impression, in minutes
eftgan evaluate runs/shapes --tasks discs --after checks    one cell of the table
eftgan evaluate runs/shapes --features random               a quick distance that is not FID
accelerate launch -m eftgan evaluate runs/shapes            the same figures, by every device of the machine
torchrun --nproc_per_node 4 -m eftgan evaluate runs/shapes  by four processes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path)
    parser.add_argument("--fid-samples", type=int, default=5000, metavar="N", help="generated images per measurement")
    parser.add_argument(
        "--fid-samples-other",
        type=int,
        metavar="N",
        help="N for tasks neither just learned nor measured after the last task (default: as --fid-samples)",
    )
    parser.add_argument(
        "--reference-samples",
        type=int,
        metavar="N",
        help="compare with N real images of a task, evenly spaced (default: with all of them)",
    )
    parser.add_argument("--tasks", nargs="+", help="only these tasks")
    parser.add_argument("--after", nargs="+", help="only as it was after these tasks")
    parser.add_argument("--features", choices=("inception", "random"), default="inception", help="random is not FID")
    parser.add_argument("--weights", type=Path, help="Inception weights (default: searched for, see README)")
    parser.add_argument("--cache", type=Path, help="statistics of real images (default: .statistics beside the run)")


def run(args: argparse.Namespace) -> None:
    """Append the missing score lines and make the report again; several processes share the work."""
    from eftgan.training.hosts import connected
    from eftgan.training.launch import meet, part

    processes = meet()
    with connected(processes), contextlib.ExitStack() as stack:
        with processes.agreeing():
            scorer, rounds, tasks = _scorer(args, processes)
            if processes.is_first:
                stack.enter_context(scorer.run.folder.locked())
        if processes.is_first:
            _measure(scorer, rounds, tasks)
            scorer.features.dismiss()
        else:
            scorer.features.help()
    part()


def _scorer(
    args: argparse.Namespace, processes: "Processes"
) -> tuple["RunScorer", Sequence[int], Sequence[str] | None]:
    """What measures, after which tasks, and which ones."""
    from eftgan.evaluation.features import load_extractor
    from eftgan.gan.scorer import RunScorer, statistics_folder
    from eftgan.kinds import open_run

    saved = cast("GanRun", open_run(args.run, "gan"))
    for option in ("--fid-samples", "--fid-samples-other", "--reference-samples"):
        count = getattr(args, option.removeprefix("--").replace("-", "_"))
        if count is not None and count < 2:
            raise UserError(f"{option} {count}: a distance needs at least 2 images")
    saved.require_trained()
    tasks = [saved.trained[saved.index(task)] for task in args.tasks] if args.tasks else None
    rounds = [saved.index(task) for task in args.after] if args.after else range(len(saved.trained))
    extractor, cache = load_extractor(args.features, weights=args.weights), args.cache or statistics_folder(saved)
    scorer = RunScorer(
        saved, extractor, args.fid_samples, cache, args.fid_samples_other, args.reference_samples, processes
    )
    return scorer, rounds, tasks


def _measure(scorer: "RunScorer", rounds: Sequence[int], tasks: Sequence[str] | None) -> None:
    """What the first process does, or the only one."""
    from eftgan.evaluation.features import seconds_per_image
    from eftgan.reports.write import write_report

    folder, extractor = scorer.run.folder, scorer.extractor
    if ahead := scorer.images_ahead(rounds, tasks):
        seconds = ahead * seconds_per_image(extractor) / scorer.processes.count
        print(f"{ahead:,} images to look at: {_duration(seconds)}", flush=True)
    found = 0
    for through in rounds:
        for score in scorer.score(through, tasks):
            print(_line(score), flush=True)
            found += 1
    if not found:
        print(f"nothing new: what can be measured has scores of {scorer.samples} images or more")
    write_report([folder.path], folder.report)
    print(f"report: {folder.report}")


def _line(score: "Score") -> str:
    if score.metric == UNCHANGED:
        tasks = f"{score.value:.0f} earlier task{'s' * (score.value > 1)}"
        return f"after {score.trained_through}: the scores of {tasks} hold, unchanged to the bit"
    mark = " (unchanged weights, carried over)" if score.details.get("carried") else ""
    where = "real against real" if score.trained_through == REAL else f"after {score.trained_through}"
    real = f" against {score.details['reference_n']} real images" if "reference_n" in score.details else ""
    return f"{score.tested_on} {where}: {score.metric} {score.value:.4g}, N = {score.n}{real}{mark}"


def _duration(seconds: float) -> str:
    """A rough time, in the unit that people would use."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds > 1.5 * size:
            return f"about {seconds / size:.0f} {unit}"
    return "less than two minutes"
