"""The tab of classifier runs: drop a picture, see what each run says of it."""

from collections.abc import Mapping
from typing import Any, cast

import gradio as gr
from PIL import Image

from eftgan.classifier.run import ClassifierRun
from eftgan.demo import markup
from eftgan.demo.examiner import Examiner, read_image
from eftgan.demo.handlers import answering
from eftgan.training.run import SavedRun

EXPLAINED = (
    "Every task answers for itself, and the surest is believed: 100 % where all of its softmax is on one class "
    "(exp(-entropy)). Where tasks differ in their heads alone, it is the share of its best class among all classes. "
    "Under another rule of inference: its share of the softmax over the tasks' scores."
)


def add_classifier_tab(page: gr.Blocks, runs: Mapping[str, SavedRun[Any]]) -> None:
    """What can be done with runs of classifiers."""
    examiners = {label: Examiner(cast(ClassifierRun, run)) for label, run in runs.items()}
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            given = gr.Image(
                type="filepath", format="png", sources=["upload", "clipboard"], label="Picture", height=320,
                elem_id="given", buttons=[],
            )  # fmt: skip
            example = gr.Button("Take one of the test images", elem_id="example", elem_classes="eft-button")
            known = gr.HTML(elem_id="known")
        with gr.Column(scale=3, min_width=320):
            said = gr.HTML(_nothing_yet(), elem_id="said")

    def judge(path: str | None) -> str:
        if path is None:
            return _nothing_yet()
        image = read_image(path)
        verdicts = [
            markup.verdict(*examiner.ask(image), heading=label if len(examiners) > 1 else "")
            for label, examiner in examiners.items()
        ]
        return f'<div class="eft-answers">{"".join(verdicts)}</div>{markup.note(EXPLAINED)}'

    def take() -> tuple[Image.Image, str]:
        picture, truth = next(iter(examiners.values())).test_image()
        return picture, markup.note(f"This is {truth}.")

    given.change(answering(judge), given, said, show_progress="minimal", api_visibility="private")
    given.upload(lambda: "", None, known, api_visibility="private")
    given.clear(lambda: "", None, known, api_visibility="private")
    example.click(answering(take), None, [given, known], show_progress="hidden", api_visibility="private")


def _nothing_yet() -> str:
    return markup.note("Drop a picture, paste one, or take one of the test images.")
