"""`eftgan demo`: a page to play with a run."""

import argparse
from pathlib import Path

HELP = "Open a page in the browser to play with a run, or with those of a comparison."
EXAMPLES = """\
eftgan demo runs/shapes                          draw, mix and interpolate tasks
eftgan demo runs/shapes-classes                  drop a picture, see the task and the class
eftgan demo runs/compare                         what `eftgan compare` wrote: methods side by side
eftgan demo runs/shapes --port 8080 --host 0.0.0.0"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="a run folder, or one with several runs of the same kind in it")
    parser.add_argument("--port", type=int, default=7860, help="0: any that is free")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in")
    parser.add_argument(
        "--share", action="store_true", help="let Gradio's servers make the page public for a week (needs a network)"
    )


def run(args: argparse.Namespace) -> None:
    """Serve the page until interrupted."""
    from eftgan.demo import require_gradio

    require_gradio()
    from eftgan.demo.serve import serve

    serve(args.run, host=args.host, port=args.port, share=args.share)
