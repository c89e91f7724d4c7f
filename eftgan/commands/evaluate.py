"""`eftgan evaluate`: FID and KID of a GAN run, where they are not measured yet."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError
from eftgan.names import REAL
from eftgan.scores import UNCHANGED

if TYPE_CHECKING:
    from eftgan.gan.run import GanRun
    from eftgan.scores import Score

HELP = "Measure FID and KID of every seen task after every task."
EXAMPLES = """\
eftgan evaluate runs/shapes --fid-samples 5000              FID of every task after every task
eftgan evaluate runs/shapes --fid-samples 500 --reference-samples 500    a first impression, in minutes
eftgan evaluate runs/shapes --tasks discs --after checks    one cell of the table
eftgan evaluate runs/shapes --features random               a quick distance that is not FID"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the folder of a run")
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
    """Append the missing score lines and make the report again."""
    from eftgan.evaluation.features import load_extractor, seconds_per_image
    from eftgan.gan.scorer import RunScorer, statistics_folder
    from eftgan.kinds import open_run
    from eftgan.reports.write import write_report

    saved = cast("GanRun", open_run(args.run, "gan"))
    for option in ("--fid-samples", "--fid-samples-other", "--reference-samples"):
        count = getattr(args, option.removeprefix("--").replace("-", "_"))
        if count is not None and count < 2:
            raise UserError(f"{option} {count}: a distance needs at least 2 images")
    saved.require_trained()
    tasks = [saved.trained[saved.index(task)] for task in args.tasks] if args.tasks else None
    rounds = [saved.index(task) for task in args.after] if args.after else range(len(saved.trained))
    with saved.folder.locked():
        extractor = load_extractor(args.features, weights=args.weights)
        cache = args.cache or statistics_folder(saved)
        scorer = RunScorer(saved, extractor, args.fid_samples, cache, args.fid_samples_other, args.reference_samples)
        if ahead := scorer.images_ahead(rounds, tasks):
            print(f"{ahead:,} images to look at: {_duration(ahead * seconds_per_image(extractor))}", flush=True)
        found = 0
        for through in rounds:
            for score in scorer.score(through, tasks):
                print(_line(score))
                found += 1
        if not found:
            print(f"nothing new: what can be measured has scores of {args.fid_samples} images or more")
        write_report([saved.folder.path], saved.folder.report)
    print(f"report: {saved.folder.report}")


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
