"""The whole page: what the run is, and the tabs of its kind."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from eftgan.demo import markup
from eftgan.demo.classifier import add_classifier_tab
from eftgan.demo.gan import add_gan_tabs
from eftgan.demo.runs import facts
from eftgan.errors import UserError
from eftgan.training.run import SavedRun

PANELS: dict[str, Callable[[gr.Blocks, Mapping[str, SavedRun[Any]]], None]] = {
    "gan": add_gan_tabs,
    "classifier": add_classifier_tab,
}


def build_page(path: Path, runs: Mapping[str, SavedRun[Any]]) -> gr.Blocks:
    """The page of one run, or of several of the same kind."""
    first = next(iter(runs.values()))
    kind = first.experiment.kind
    if kind not in PANELS:
        raise UserError(f"{path}: there is no page for {kind} runs yet; there is one for: {', '.join(PANELS)}")
    name = path.resolve().name
    about = facts(first)
    if len(runs) > 1:
        about = {"Methods": ", ".join(runs), **{key: about[key] for key in ("Network", "Tasks")}}
    # Pictures that people drop lie in a temporary folder for an hour at most, and not beyond the end of the server.
    with gr.Blocks(title=f"{name} · eftgan", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.HTML(markup.header(name, markup.sentence_about(runs), about))
        PANELS[kind](page, runs)
    return page
