"""Measure, print and save the table of ratios.

python -m benchmarks                          all of them, some minutes
python -m benchmarks inference training       some of them
python -m benchmarks --out docs/benchmarks.md
"""

import argparse
import importlib
import os
import platform
from pathlib import Path

import torch

from benchmarks.harness import Ratio

NAMES = ("inference", "generators", "training", "fusing", "class_incremental", "storage", "exported")
NOTES = "\n## Notes\n"
HEADER = ("benchmark", "reference", "ratio", "quartiles", "fastest", "goal", "reached", "ours, ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the table as Markdown as well")
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no benchmark {sorted(unknown)[0]}; there are: {', '.join(NAMES)}")
    torch.set_num_threads(args.threads)
    found = []
    for name in args.names or NAMES:
        for ratio in importlib.import_module(f"benchmarks.{name}").benchmarks():
            print(" | ".join(ratio.row()), flush=True)
            found.append(ratio)
    if args.out:
        args.out.write_text(_page(found, args) + _notes(args.out))


def _page(found: list[Ratio], args: argparse.Namespace) -> str:
    command = " ".join(["python -m benchmarks", *args.names])
    machine = f"{os.cpu_count()} cores ({platform.machine()}), {args.threads} threads, torch {torch.__version__}"
    rows = [HEADER, ("---",) * len(HEADER), *(ratio.row() for ratio in found)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"""# Benchmarks

Ratios of two sides measured by turns in one run: the median of all rounds with quartiles, and the ratio of each side's
fastest round. Smaller is better.

Made by `{command}` on a machine with {machine}.

{table}
"""


def _notes(page: Path) -> str:
    """What people wrote below the table of an earlier run stays."""
    before = page.read_text() if page.is_file() else ""
    return before[before.index(NOTES) :] if NOTES in before else ""


if __name__ == "__main__":
    main()
