"""`eftgan evaluate`: FID, KID and other metrics of a GAN run; rules of task inference of a classifier run."""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from eftgan.errors import UserError
from eftgan.names import REAL
from eftgan.scores import UNCHANGED

if TYPE_CHECKING:
    from eftgan.classifier.run import ClassifierRun
    from eftgan.data.processes import Processes
    from eftgan.evaluation.metrics import Metric
    from eftgan.gan.run import GanRun
    from eftgan.gan.scorer import RunScorer
    from eftgan.scores import Score

HELP = "Measure a GAN by FID, KID or other metrics, a classifier by rules of task inference."
EXAMPLES = """\
eftgan evaluate runs/shapes --fid-samples 5000              FID of every task after every task
eftgan evaluate runs/shapes --fid-samples 500 --reference-samples 500    a first impression, in minutes
eftgan evaluate runs/shapes --metrics fid,kid,prdc,lpips    precision, recall and diversity as well
eftgan evaluate runs/shapes --tasks discs --after checks    one cell of the table
eftgan evaluate runs/shapes --features random               a quick distance that is not FID
accelerate launch -m eftgan evaluate runs/shapes            the same figures, by every device of the machine
torchrun --nproc_per_node 4 -m eftgan evaluate runs/shapes  by four processes
eftgan evaluate runs/shapes-classes --inference auto,entropy+lda-joint    how tasks are told apart, nothing trained
eftgan evaluate runs/shapes-classes --inference all --out rules.csv"""


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
    add_choice_of_metrics(parser)
    parser.add_argument(
        "--inference",
        metavar="RULES",
        help="of a classifier run: compare these rules of task inference, with commas between them, sums as "
        "entropy+lda-joint, or all that the run allows (docs/inference.md has them); the run itself stays as it is",
    )
    parser.add_argument("--out", type=Path, metavar="CSV", help="with --inference: write a table of every task as well")
    parser.add_argument("--weights", type=Path, help="Inception weights (default: searched for, see README)")
    parser.add_argument("--cache", type=Path, help="statistics of real images (default: .statistics beside the run)")


def add_choice_of_metrics(parser: argparse.ArgumentParser) -> None:
    """The options that say what is measured."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--metrics",
        metavar="NAMES",
        help="with commas between them: fid, kid, prdc (precision, recall, density and coverage, each a name as well), "
        "lpips, b-lpips; recall-k10 is recall with 10 neighbours; docs/metrics.md has all (default: fid,kid)",
    )
    choice.add_argument(
        "--features",
        choices=("inception", "random"),
        help="random: fd-random and kid-random, which are not FID (default: inception)",
    )


def chosen_metrics(args: argparse.Namespace) -> "dict[str, list[Metric]]":
    """What is measured, by the features that it is measured on."""
    from eftgan.evaluation.metrics import metrics_over
    from eftgan.evaluation.metrics.selection import by_features, metrics_named

    usual = metrics_over(args.features or "inception")
    return by_features(usual if args.metrics is None else metrics_named(args.metrics))


def run(args: argparse.Namespace) -> None:
    """Append the missing score lines and make the report again; several processes share the work."""
    if args.inference is not None:
        _compare_rules(args)
        return
    if args.out is not None:
        raise UserError("--out: goes with --inference; scores of a GAN run are written into its folder")
    from eftgan.training.hosts import connected
    from eftgan.training.launch import meet, part

    processes = meet()
    with connected(processes), contextlib.ExitStack() as stack:
        with processes.agreeing():
            scorers, rounds, tasks = _scorers(args, processes)
            if processes.is_first:
                stack.enter_context(scorers[0].run.folder.locked())
        if processes.is_first:
            _measure(scorers, rounds, tasks)
        else:
            for scorer in scorers:
                scorer.features.help()
    part()


def _compare_rules(args: argparse.Namespace) -> None:
    """What every rule finds after a task, the last one if no other is named."""
    from eftgan.classifier.rule_table import as_csv, as_text, score_rules, usable_rules
    from eftgan.classifier.scorer import ClassifierScorer
    from eftgan.evaluation.rules import rule_named
    from eftgan.files import write_text
    from eftgan.kinds import open_run

    saved = cast("ClassifierRun", open_run(args.run, "classifier"))
    saved.require_trained()
    if args.inference == "all":
        names, left_out = usable_rules(saved)
        if left_out:
            print(left_out)
    else:
        names = list(dict.fromkeys(word.strip() for word in args.inference.split(",")))
    for name in names:
        rule_named(name)  # an unknown one is refused before any work
    rounds = [saved.index(task) for task in args.after or saved.trained[-1:]]
    found = []
    with saved.folder.locked():
        for through in rounds:
            own = score_rules(ClassifierScorer(saved), through, names)
            images = sum(each.images for each in own if each.rule == names[0])
            print(f"after {saved.tasks[through]}, N = {images:,} test images, averages over tasks in %")
            print("\n".join(as_text(own)), flush=True)
            found += own
    if args.out:
        write_text(args.out, as_csv(found))
        print(args.out)


def _scorers(
    args: argparse.Namespace, processes: "Processes"
) -> tuple["list[RunScorer]", Sequence[int], Sequence[str] | None]:
    """What measures, one for each kind of features; after which tasks, and which ones."""
    chosen = chosen_metrics(args)
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
    cache = args.cache or statistics_folder(saved)
    counts = (args.fid_samples, cache, args.fid_samples_other, args.reference_samples)
    scorers = [
        RunScorer(saved, load_extractor(features, weights=args.weights), *counts, metrics, processes)
        for features, metrics in chosen.items()
    ]
    return scorers, rounds, tasks


def _measure(scorers: "Sequence[RunScorer]", rounds: Sequence[int], tasks: Sequence[str] | None) -> None:
    """What the first process does, or the only one."""
    from eftgan.reports.write import write_report

    folder, found = scorers[0].run.folder, 0
    _say_ahead([(scorer, scorer.images_ahead(rounds, tasks)) for scorer in scorers])
    for scorer in scorers:
        for score in (score for through in rounds for score in scorer.score(through, tasks)):
            print(_line(score), flush=True)
            found += 1
        scorer.features.dismiss()
    if not found:
        print(f"nothing new: what can be measured has scores of {scorers[0].samples} images or more")
    write_report([folder.path], folder.report)
    print(f"report: {folder.report}")


def _say_ahead(work: "Sequence[tuple[RunScorer, int]]") -> None:
    """How many images have to be looked at, and about how long that takes."""
    from eftgan.evaluation.features import seconds_per_image

    if ahead := sum(count for _, count in work):
        size = work[0][0].run.experiment.network.sizes[-1]
        seconds = sum(count * seconds_per_image(scorer.extractor, size) for scorer, count in work if count)
        print(f"{ahead:,} images to look at: {_duration(seconds / work[0][0].processes.count)}", flush=True)


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
