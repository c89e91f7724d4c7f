"""`eftgan train`, and what train_gan.py and train_classifier.py do: from a config to a trained run."""

import argparse
import json
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eftgan.commands import asks_for_help, command_line, exit_stopped
from eftgan.errors import UserError, exit_on_user_error

if TYPE_CHECKING:
    from eftgan.training.kind import Kind

HELP = "Train on one task after another; the same command continues a run that was stopped."
EXAMPLES = """\
eftgan train gan                                    the built-in demo: four collections, minutes
eftgan train classifier                             the built-in demo: three tasks, a minute
eftgan train gan --data photos/                     a folder of your own, or a .zip, .tar or .tar.gz
eftgan train classifier --data flowers.zip          of labelled images: flowers/<class>/*.jpg
eftgan train gan --resume runs/photos --data birds/ one more task
eftgan train gan --config cats_birds_churches_towers_32 training.steps=2000 out=runs/mine
eftgan train gan --config shapes/eft-plus           a recipe: what shapes/eft-plus.yaml changes in shapes.yaml
eftgan train classifier --config my.yaml method=lwf
eftgan train gan --resume runs/shapes 'tasks+={name: rings, data: rings.lmdb}'
accelerate launch -m eftgan train gan               on every device of the machine"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from eftgan.kinds import KINDS

    parser.usage = "eftgan train KIND [--config NAME_OR_FILE | --resume RUN] [--data PATH ...] [key=value ...]"
    parser.add_argument("kind", metavar="KIND", choices=tuple(KINDS), help=f"what to train: {' or '.join(KINDS)}")
    add_config_arguments(parser)


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """What may stand behind the kind, and behind the scripts, which have theirs."""
    from eftgan.kinds import DEMO

    source = parser.add_mutually_exclusive_group()
    given = f"a YAML file, or the name of a config that comes with eftgan (default: {DEMO})"
    source.add_argument("--config", metavar="NAME_OR_FILE", help=given)
    source.add_argument("--resume", type=Path, metavar="RUN", help="continue a run, or give it further tasks")
    learned = "a folder or archive of images to learn in place of the config's; repeat it for further tasks"
    parser.add_argument("--data", action="append", metavar="PATH", help=learned)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="set any key; key+=value adds to a list")


def run(args: argparse.Namespace) -> None:
    train(args.kind, args, args.command_line)


def more_help(words: Sequence[str]) -> str:
    """The keys and configs of the kind that is named, or where to find them."""
    from eftgan.kinds import KINDS

    kind = next((word for word in words if word in KINDS), None)
    if kind is None:
        return "keys of a config:\n" + "\n".join(f"  eftgan train {each} --help" for each in KINDS)
    return explain_kind(kind)


def explain_kind(name: str) -> str:
    """Every config that comes with eftgan, and every key of a config."""
    from eftgan.config import describe
    from eftgan.kinds import load_kind, shipped_configs

    lines = ["configs by name:", *(f"  {config}" for config in shipped_configs(name)), ""]
    lines += [
        "keys of a config (method[eft].init is typed method.init=... and exists with that method only; entries of",
        "lists have numbers from 0, tasks.0.limit=...):",
    ]
    for path, value, doc in describe(load_kind(name).experiment_type):
        lines += [f"  {path}: {value}", f"      {doc}"] if doc else [f"  {path}: {value}"]
    return "\n".join(lines)


def run_script(kind: str, doc: str, argv: Sequence[str] | None = None) -> None:
    """What train_gan.py does: `eftgan train` with the kind given."""
    words = list(sys.argv[1:] if argv is None else argv)
    with exit_on_user_error():
        parser = argparse.ArgumentParser(
            description=doc,
            epilog=explain_kind(kind) if asks_for_help(words) else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_config_arguments(parser)
        train(kind, parser.parse_intermixed_args(words), command_line(words, sys.argv[0]))


def train(kind_name: str, args: argparse.Namespace, command: str) -> None:
    """Train what the words say, and say what to do next; `command` is what continues it."""
    from eftgan.kinds import load_kind
    from eftgan.training.launch import meet, part
    from eftgan.training.stopping import Stopped

    try:
        kind = load_kind(kind_name)
        with meet().agreeing():
            experiment = _experiment(kind, args)
        finished = kind.train(experiment, command)
        part()
        if finished is not None:
            print(finished.summary())
    except Stopped as stopped:
        exit_stopped(str(stopped), command, stopped.signal)
    except KeyboardInterrupt:
        exit_stopped("interrupted; what was saved before is whole", command, signal.SIGINT)


def data_words(kind_name: str, paths: Sequence[str], resumes: bool) -> list[str]:
    """What `--data` stands for: a task (or source) for each path, called as it is, in a run of the first one's name.

    A run that is resumed gets them as further ones.
    """
    from eftgan.kinds import load_kind
    from eftgan.names import plain_name

    if not paths:
        return []
    key = load_kind(kind_name).sequence_key
    names = [re.sub(r"-(\d+)$", r"_\1", plain_name(Path(path))) for path in paths]  # NAME-10 would mean ten classes
    entries = [{"name": name, "data": path} for name, path in zip(names, paths, strict=True)]
    if resumes:
        return [f"{key}+={json.dumps(entry)}" for entry in entries]
    return [f"out=runs/{names[0]}", f"{key}={json.dumps(entries)}"]


def _experiment(kind: "Kind[Any, Any, Any]", args: argparse.Namespace) -> Any:
    """What the words ask for."""
    from eftgan.config import load
    from eftgan.kinds import DEMO, find_config

    overrides = [*data_words(kind.name, args.data or (), bool(args.resume)), *args.overrides]
    if args.resume:
        path = _config_to_resume(args.resume, kind.name)
        overrides.append(f"out={args.resume}")
    else:
        path = find_config(args.config or DEMO, kind.name)
    experiment = load(kind.experiment_type, path, overrides)
    experiment.check_given(overrides)
    return experiment


def _config_to_resume(run: Path, kind: str) -> Path:
    """The config of a run; refused where there is none, or a run of another kind."""
    from eftgan.kinds import KINDS
    from eftgan.runfolder import RunFolder

    folder = RunFolder(run)
    if not folder.config.is_file():
        raise UserError(f"{run}: no run there to continue (config.yaml is missing)")
    its = folder.read_facts().get("kind", kind)
    if its != kind and its in KINDS:
        raise UserError(f"{run} is a {its} run; use: eftgan train {its} --resume {shlex.quote(str(run))}")
    return folder.config
