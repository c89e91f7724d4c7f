"""`eftgan`: what people do with trained runs. Each command imports what it needs when it runs."""

import argparse
import shlex
import sys
from pathlib import Path

from eftgan.errors import UserError, exit_on_user_error

EXAMPLES = """examples:
  eftgan sample runs/shapes --task discs --n 64 --seed 7 --out grid.png
  eftgan sample runs/shapes --task all --out all.png          one row per task
  eftgan evaluate runs/shapes --fid-samples 5000              FID of every task after every task
  eftgan compare configs/gan/shapes.yaml --methods finetune,ewc,mergan,eft --seeds 0,1 --out runs/compare
  eftgan compare configs/classifier/shapes.yaml --methods finetune,lwf,ewc,eft --out runs/compare-classes
  eftgan fid real_folder generated_folder                     like python -m pytorch_fid, the same figure
  eftgan report runs/shapes runs/other --out report.html
  eftgan info runs/shapes
  eftgan export runs/shapes --task discs --out discs.pt2
  eftgan classify runs/shapes-classes --image photo.jpg
  eftgan growth --model resnet18 --a 8 --b 16
"""


def main(argv: list[str] | None = None) -> None:
    """Entry of the console script."""
    parser = argparse.ArgumentParser(
        prog="eftgan", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    adders = (
        add_sample,
        add_evaluate,
        add_compare,
        add_fid,
        add_report,
        add_info,
        add_export,
        add_classify,
        add_growth,
    )
    for add in adders:
        add(commands)
    words = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(words)
    args.command_line = shlex.join(["eftgan", *words])
    with exit_on_user_error():
        try:
            args.run_command(args)
        except KeyboardInterrupt:
            print("\ninterrupted; what was written before is whole: run the same command again", file=sys.stderr)
            sys.exit(130)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults; an option without one says in its own words what happens then."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = any(action.default is nothing for nothing in (None, False, ()))
        return action.help if silent else super()._get_help_string(action)


def _command(commands, name: str, run, help: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help, description=help, formatter_class=_Help)
    parser.set_defaults(run_command=run)
    return parser


def add_sample(commands) -> None:
    parser = _command(commands, "sample", sample, "Draw images of a task.")
    parser.add_argument("run", type=Path, help="a run folder, or one with only config.yaml, shared and task files")
    parser.add_argument("--task", default="all", help="a task's name or number, or all: one row per task")
    parser.add_argument("--n", type=int, default=None, help="how many images (64; with all: 8 per task)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same images on one device")
    parser.add_argument("--after", help="as the generator was after this task (default: the last one)")
    parser.add_argument("--truncation", type=float, help="keep the noise within this many deviations, e.g. 1.5")
    parser.add_argument("--out", type=Path, help="the grid to write (default: samples.png)")
    parser.add_argument("--images", type=Path, metavar="DIR", help="write single PNGs into this folder as well")


def sample(args: argparse.Namespace) -> None:
    """Write a grid of one task or of all, and single images if asked."""
    import torch

    from eftgan.data.grid import save_grid, save_png
    from eftgan.kinds import open_run

    run = open_run(args.run, "gan")
    after = run.index(args.after) if args.after else len(run.trained) - 1
    everything = args.task == "all"
    tasks = run.trained[: after + 1] if everything else [run.trained[run.index(args.task)]]
    count = (8 if everything else 64) if args.n is None else args.n
    if count < 1:
        raise UserError(f"--n {count}: at least one image")
    if args.truncation is not None and args.truncation <= 0:
        raise UserError(f"--truncation {args.truncation}: give a positive number of deviations")
    generator = run.generator(after)
    drawn = {task: run.sample(task, count, args.seed, generator, args.truncation) for task in tasks}
    if args.images:
        for task, images in drawn.items():
            for index, image in enumerate(images):
                save_png(image, args.images / f"{task}-{args.seed}-{index:05d}.png")
        print(f"{count * len(tasks)} images in {args.images}")
    if args.out or not args.images:
        out = args.out or Path("samples.png")
        columns = count if everything else max(1, min(8, count))
        save_grid(torch.cat(list(drawn.values())), out, columns)
        print(f"{out}: {', '.join(tasks)} after {run.trained[after]}, seed {args.seed}")


def add_evaluate(commands) -> None:
    parser = _command(commands, "evaluate", evaluate, "Measure FID and KID of every seen task after every task.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--fid-samples", type=int, default=5000, metavar="N", help="generated images per measurement")
    parser.add_argument(
        "--elsewhere",
        type=int,
        metavar="N",
        help="N for tasks neither just learned nor measured after the last task (default: as --fid-samples)",
    )
    parser.add_argument("--tasks", nargs="+", help="only these tasks")
    parser.add_argument("--after", nargs="+", help="only as it was after these tasks")
    parser.add_argument("--features", choices=("inception", "random"), default="inception", help="random is not FID")
    parser.add_argument("--weights", type=Path, help="Inception weights (default: searched for, see README)")
    parser.add_argument("--cache", type=Path, help="statistics of real images (default: .statistics beside the run)")


def evaluate(args: argparse.Namespace) -> None:
    """Append the missing score lines and make the report again."""
    from eftgan.evaluation.features import load_extractor
    from eftgan.gan.scorer import RunScorer, statistics_folder
    from eftgan.kinds import open_run
    from eftgan.reports.write import write_report
    from eftgan.scores import REAL

    run = open_run(args.run, "gan")
    for option, count in (("--fid-samples", args.fid_samples), ("--elsewhere", args.elsewhere)):
        if count is not None and count < 2:
            raise UserError(f"{option} {count}: a distance needs at least 2 images")
    tasks = [run.trained[run.index(task)] for task in args.tasks] if args.tasks else None
    rounds = [run.index(task) for task in args.after] if args.after else range(len(run.trained))
    if not run.trained:
        run.index(1)
    with run.folder.locked():
        extractor = load_extractor(args.features, weights=args.weights)
        scorer = RunScorer(run, extractor, args.fid_samples, args.cache or statistics_folder(run), args.elsewhere)
        for through in rounds:
            for score in scorer.score(through, tasks):
                mark = " (unchanged weights, carried over)" if score.details.get("carried") else ""
                real = score.trained_through == REAL
                where = "real against real" if real else f"after {score.trained_through}"
                print(f"{score.tested_on} {where}: {score.metric} {score.value:.4g}, N = {score.n}{mark}")
        write_report([run.folder.path], run.folder.report)
    print(f"report: {run.folder.report}")


def add_compare(commands) -> None:
    parser = _command(commands, "compare", compare, "Train several methods on one sequence; one report.")
    parser.add_argument("config", type=Path, help="X.yaml; methods are refined by X/METHOD.yaml, if there")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the config")
    usual = "default: finetune, ewc, mergan (classifiers: lwf), eft and separate"
    parser.add_argument("--methods", help=f"methods or recipes, with commas ({usual})")
    parser.add_argument("--seeds", default="0", help="for example 0,1,2")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"), help="folder of the runs and the report")


def compare(args: argparse.Namespace) -> None:
    """Run what is not finished yet, then write one report."""
    from eftgan.commands.compare import compare_methods
    from eftgan.entry import say_goodbye
    from eftgan.training.stopping import Stopped

    seeds = args.seeds.split(",")
    if not all(seed.isdigit() for seed in seeds):
        raise UserError(f"--seeds {args.seeds}: give whole numbers, for example 0,1,2")
    methods = args.methods.split(",") if args.methods else None
    try:
        paths = compare_methods(
            args.config, args.overrides, methods, list(map(int, seeds)), args.out, args.command_line
        )
    except Stopped as stopped:
        say_goodbye(str(stopped), args.command_line, stopped.signal)
    print(*paths, sep="\n")


def add_fid(commands) -> None:
    parser = _command(commands, "fid", fid, "Compare two folders of images: FID and KID.")
    parser.add_argument("real", type=Path, help="a folder of real images")
    parser.add_argument("fake", type=Path, help="a folder of generated images")
    parser.add_argument("--features", choices=("inception", "random"), default="inception", help="random is not FID")
    parser.add_argument("--weights", type=Path, help="Inception weights (default: searched for, see README)")
    parser.add_argument("--mixed-sizes", action="store_true", help="allow images of different sizes in one folder")


def fid(args: argparse.Namespace) -> None:
    """Print the distances between two folders."""
    from eftgan.evaluation.features import load_extractor
    from eftgan.evaluation.folders import compare_folders, require_folder

    for folder in (args.real, args.fake):
        require_folder(folder)  # before the network is loaded
    extractor = load_extractor(args.features, weights=args.weights)
    print(compare_folders(args.real, args.fake, extractor, mixed_sizes=args.mixed_sizes))


def add_report(commands) -> None:
    parser = _command(commands, "report", report, "Make one page from the score lines of one or more runs.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, help="the HTML page (default: report.html in the first run)")


def report(args: argparse.Namespace) -> None:
    """Write report.html with report.md, table.tex, scores.csv and the curves beside it."""
    from eftgan.reports.write import write_report

    for path in write_report(args.runs, args.out or args.runs[0] / "report.html"):
        print(path)


def add_info(commands) -> None:
    parser = _command(commands, "info", info, "Show a run's tasks, growth, steps and digests.")
    parser.add_argument("run", type=Path)


def info(args: argparse.Namespace) -> None:
    """Print what a run folder holds."""
    from eftgan.kinds import open_run

    print(open_run(args.run).describe())


def add_export(commands) -> None:
    parser = _command(commands, "export", export, "Write a task's merged generator as a plain PyTorch program.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--task", required=True, help="a task's name or number")
    parser.add_argument("--out", type=Path, required=True, help="NAME.pt2 (torch.export) or NAME.safetensors")


def export(args: argparse.Namespace) -> None:
    """Write the generator of one task without any of this package's classes."""
    from eftgan.gan.export import export_generator
    from eftgan.kinds import open_run

    run = open_run(args.run, "gan")
    for line in export_generator(run, run.trained[run.index(args.task)], args.out):
        print(line)


def add_classify(commands) -> None:
    parser = _command(commands, "classify", classify, "Say what an image shows, by a trained classifier.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--task", help="a task's name or number (default: inferred by the least entropy)")
    parser.add_argument("--top", type=int, default=5, help="how many classes to show")


def classify(args: argparse.Namespace) -> None:
    """Print the most probable classes of one image."""
    import torch

    from eftgan.data.images import decode_rgb, fit_square, to_chw
    from eftgan.kinds import open_run

    run = open_run(args.run, "classifier")
    run.index(args.task or 1)
    try:
        image = decode_rgb(args.image.read_bytes())
    except Exception as error:  # decoders raise whatever a damaged file makes of them
        raise UserError(f"{args.image}: cannot be read as an image ({error})") from error
    task, ranked = run.classify(torch.from_numpy(to_chw(fit_square(image, run.experiment.network.size))), args.task)
    print(f"task {task}{'' if args.task else ' (inferred)'}")
    for name, share in ranked[: max(1, args.top)]:
        print(f"  {share:6.1%}  {name}")


def add_growth(commands) -> None:
    parser = _command(commands, "growth", growth, "Parameters, FLOPs and bytes that one task adds to a network.")
    parser.add_argument("--model", default="resnet18", help="a classifier, torchvision:NAME, or stackgan")
    parser.add_argument("--a", type=int, default=8, help="group size of the 3x3 convolution")
    parser.add_argument("--b", type=int, default=16, help="group size of the 1x1 convolution")
    parser.add_argument("--mode", choices=("serial", "parallel"), default="serial")
    parser.add_argument("--exclude", nargs="*", default=(), help="patterns of layers without adapters, e.g. stem*")
    parser.add_argument("--classes", type=int, default=10, help="outputs of a classifier's head")
    parser.add_argument("--size", type=int, help="image size (default: the network's usual one)")
    parser.add_argument("--stages", type=int, default=1, help="stackgan: 1 to 3")
    parser.add_argument("--ngf", type=int, default=64, help="stackgan: width of generator and discriminators")
    parser.add_argument("--layers", action="store_true", help="show every layer's effective group sizes")


def growth(args: argparse.Namespace) -> None:
    """Print the growth table of a network."""
    from eftgan.adapters import AdapterConfig
    from eftgan.evaluation.growth import format_growth
    from eftgan.evaluation.known_networks import classifier_growth, stackgan_growth
    from eftgan.models.gans.stackgan import StackGan

    if args.model == "stackgan":
        try:
            config = StackGan(stages=args.stages, base_size=args.size or 64, ngf=args.ngf, ndf=args.ngf)
        except ValueError as error:
            raise UserError(str(error)) from error
        adapters = AdapterConfig(args.a, args.b, args.mode, exclude=tuple(args.exclude))
        found = stackgan_growth(config, adapters)
    else:
        found = classifier_growth(args.model, args.classes, args.a, args.b, args.mode, args.exclude, args.size)
    print(format_growth(found, args.layers))


if __name__ == "__main__":
    main(sys.argv[1:])
