"""Train generators and classifiers on one task after another, and use and measure what was trained."""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol, cast

from eftgan.errors import exit_on_user_error

# What people type -> the module beside this one that does it. A new verb is one file and one line; what is slow to
# import belongs inside its functions, so that `eftgan --help` needs no torch.
VERBS: dict[str, str] = {
    "train": "train",
    "sample": "sample",
    "demo": "demo",
    "evaluate": "evaluate",
    "compare": "compare",
    "paper": "paper",
    "tune": "tune",
    "fid": "fid",
    "report": "report",
    "info": "info",
    "export": "export",
    "push": "push",
    "classify": "classify",
    "growth": "growth",
}


class Verb(Protocol):
    """What the module of a verb has."""

    HELP: str  # one line
    EXAMPLES: str  # a command a line; the list of all verbs shows the first

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What may stand behind the verb."""

    def run(self, args: argparse.Namespace) -> None:
        """Do it; `args.words` are what was typed behind `eftgan`, `args.command_line` what to type to do it again."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry of the console script: a UserError is one message and exit code 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    with exit_on_user_error():
        if not words or words[0] not in VERBS:
            overview = _overview()
            overview.parse_args(words)  # ends with the help, the version, or a message
            overview.error("begin with a command")
        name, *rest = words
        verb = load_verb(name)
        args = verb_parser(name, verb, rest).parse_intermixed_args(rest)
        args.words, args.command_line = words, command_line(words)
        try:
            verb.run(args)
        except KeyboardInterrupt:
            print("\ninterrupted; what was written before is whole: run the same command again", file=sys.stderr)
            sys.exit(130)


def load_verb(name: str) -> Verb:
    """The module of a verb."""
    return cast(Verb, importlib.import_module(f"eftgan.commands.{VERBS[name]}"))


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults; an option without one says in its own words what happens then."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = any(action.default is nothing for nothing in (None, False, ()))
        return action.help if silent else super()._get_help_string(action)


def verb_parser(name: str, verb: Verb, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of one verb.

    words: what stands behind it. A module may have `more_help(words)`: what its help says besides, made only when
    help is asked for.
    """
    epilog = _examples(verb.EXAMPLES.splitlines())
    if asks_for_help(words) and hasattr(verb, "more_help"):
        epilog += "\n\n" + verb.more_help(words)
    parser = argparse.ArgumentParser(
        prog=f"eftgan {name}", description=verb.HELP, epilog=epilog, formatter_class=HelpFormatter
    )
    verb.add_arguments(parser)
    return parser


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether a command line will end with its help."""
    return bool({"-h", "--help"} & set(words))


def _overview() -> argparse.ArgumentParser:
    from eftgan import __version__

    verbs = {name: load_verb(name) for name in VERBS}
    first = [verb.EXAMPLES.splitlines()[0] for verb in verbs.values()]
    parser = argparse.ArgumentParser(
        prog="eftgan",
        description=__doc__,
        epilog=f"{_examples(first)}\n\n`eftgan COMMAND --help` explains a command and shows more examples.",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"eftgan {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, verb in verbs.items():
        commands.add_parser(name, help=verb.HELP)
    return parser


def _examples(lines: Sequence[str]) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def command_line(words: Sequence[str], script: str | None = None) -> str:
    """What to type to start the same again, by the same way: a script, `eftgan`, or `python -m eftgan`."""
    as_module = Path(sys.argv[0]).parts[-2:] == ("eftgan", "__main__.py")
    if is_alone() and not script and not as_module:
        return shlex.join(["eftgan", *words])
    return shlex.join([*_launcher(), *([script] if script else ["-m", "eftgan"]), *words])


def _launcher() -> list[str]:
    """What starts Python, once or several times."""
    started, hosts = os.environ.get("WORLD_SIZE", "1"), os.environ.get("GROUP_WORLD_SIZE", "1")
    here = os.environ.get("LOCAL_WORLD_SIZE", started)
    if "ACCELERATE_MIXED_PRECISION" in os.environ:  # which its launcher sets
        machines = [] if hosts == "1" else ["--num_machines", hosts]
        return ["accelerate", "launch", *machines, *([] if is_alone() else ["--num_processes", started])]
    nodes = [] if hosts == "1" else ["--nnodes", hosts]
    return ["python"] if is_alone() else ["torchrun", *nodes, "--nproc_per_node", here]


def is_alone() -> bool:
    """Whether this process trains by itself, not one of several that torchrun or accelerate started."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


def is_first() -> bool:
    """Whether this process is the one of several that speaks and writes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def exit_stopped(message: str, command: str, signal_number: int) -> NoReturn:
    """End after a polite stop; the first process says how to go on. The exit code is what shells give a signal."""
    if is_first():
        remedy = f"Continue with: {command}" if is_alone() else "Continue with the command that started it"
        print(f"\n{message}.\n{remedy}", file=sys.stderr)
    sys.exit(128 + signal_number)
