"""`python -m data_prep`: one subcommand a data set, and `check` and `info` for what was made."""

import argparse
from types import ModuleType

from data_prep import cats, cifar, cub, folder, inspection, lsun, svhn, tiny
from data_prep.common import add_common_arguments, check_common_arguments, run
from eftgan.errors import exit_on_user_error

DATASETS: dict[str, ModuleType] = {
    "cats": cats,
    "cub": cub,
    "lsun": lsun,
    "folder": folder,
    "cifar": cifar,
    "svhn": svhn,
    "tiny": tiny,
}


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; a data set's help is its module's docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m data_prep",
        description="Turn raw images into LMDB sets for training.",
        epilog="`python -m data_prep COMMAND --help` says where to get the raw data and which layout is expected.",
    )
    commands = parser.add_subparsers(dest="dataset", metavar="COMMAND", required=True)
    for name, module in DATASETS.items():
        title = (module.__doc__ or name).split("\n", 1)[0]
        command = commands.add_parser(name, help=title, description=module.__doc__, formatter_class=raw)
        add_common_arguments(command, size=module.SIZE, exact=module.EXACT)
        module.add_arguments(command)
    inspection.add_commands(commands)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a user's mistake is one message and exit code 2."""
    args = build_parser().parse_args(arguments)
    with exit_on_user_error():
        if args.dataset in DATASETS:
            check_common_arguments(args)
            run(args, DATASETS[args.dataset].plan(args))
        else:
            args.run(args)


if __name__ == "__main__":
    main()
