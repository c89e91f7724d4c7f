"""What the two training entries share: the command line, polite stops, the lines to type next."""

import argparse
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from eftgan.errors import UserError, exit_on_user_error


def run_entry(
    doc: str, experiment: str, demo: Path, train: Callable[[Any, str], None], argv: list[str] | None = None
) -> None:
    """Parse `[--config FILE | --resume RUN] [key=value ...]` and train.

    experiment: "module:Class" of the config; imported late, so that a wrong option is answered at once.
    """
    with exit_on_user_error():
        words = sys.argv[1:] if argv is None else argv
        args = _parser(doc, demo, experiment if {"-h", "--help"} & set(words) else None).parse_args(words)
        overrides = list(args.overrides)
        if args.resume:
            if not (args.resume / "config.yaml").is_file():
                raise UserError(f"{args.resume}: no run there to continue (config.yaml is missing)")
            overrides.append(f"out={args.resume}")
        from eftgan.config import load
        from eftgan.training.stopping import Stopped

        path = args.resume / "config.yaml" if args.resume else args.config or demo
        config = load(_class(experiment), path, overrides)
        launcher = ["python"] if _alone() else ["torchrun", "--nproc_per_node", os.environ["WORLD_SIZE"]]
        command = shlex.join([*launcher, sys.argv[0], *words])
        try:
            train(config, command)
        except Stopped as stopped:
            say_goodbye(str(stopped), command, stopped.signal)
        except KeyboardInterrupt:
            say_goodbye("interrupted; what was saved before is whole", command, signal.SIGINT)


def _alone() -> bool:
    return os.environ.get("WORLD_SIZE", "1") == "1"


def say_goodbye(message: str, command: str, number: int) -> NoReturn:
    """How to go on, told by the first process; the exit code is what shells give for the signal."""
    if os.environ.get("RANK", "0") == "0":
        remedy = f"Continue with: {command}" if _alone() else "Continue with the command that started it"
        print(f"\n{message}.\n{remedy}", file=sys.stderr)
    sys.exit(128 + number)


def _class(path: str) -> type:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _parser(doc: str, demo: Path, explain: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=doc, epilog=explain and _explain_keys(_class(explain)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", type=Path, metavar="FILE", help=f"a YAML experiment (default: {demo.name})")
    source.add_argument("--resume", type=Path, metavar="RUN", help="continue a run, or give it further tasks")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="set any key below; key+=value adds to a list"
    )
    return parser


def _explain_keys(kind: type) -> str:
    from eftgan.config import describe

    lines = [
        "keys of a config (method[eft].init is typed method.init=... and exists with that method only; entries of",
        "lists have numbers from 0, tasks.0.limit=...):",
    ]
    for path, value, doc in describe(kind):
        lines += [f"  {path}: {value}", f"      {doc}"] if doc else [f"  {path}: {value}"]
    return "\n".join(lines)
