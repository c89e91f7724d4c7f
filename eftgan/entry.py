"""What the two training entries share: the command line, polite stops, the lines to type next."""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        command = " ".join([Path(sys.argv[0]).name, *words])
        try:
            train(config, f"python {command}")
        except Stopped as stopped:
            print(f"\n{stopped}.\nContinue with: python {command}", file=sys.stderr)
            sys.exit(130)


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

    lines = ["keys of a config:"]
    for path, value, doc in describe(kind):
        lines += [f"  {path}: {value}", f"      {doc}"] if doc else [f"  {path}: {value}"]
    return "\n".join(lines)
