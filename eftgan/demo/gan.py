"""The tabs of GAN runs: draw, interpolate, before and after."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import gradio as gr

from eftgan.demo import markup
from eftgan.demo.handlers import answering
from eftgan.demo.history import history, real_images
from eftgan.demo.markup import Figure
from eftgan.demo.requests import BASE_CHOICE, NO_PARTNER, UNTRUNCATED, Still, Way, command_words, order
from eftgan.demo.studio import Studio
from eftgan.gan.run import GanRun
from eftgan.training.run import SavedRun

Studios = Mapping[str, Studio]
FEW = 8  # tasks that are buttons; more of them are a list to choose from
LARGEST_SEED = 9999


def add_gan_tabs(page: gr.Blocks, runs: Mapping[str, SavedRun[Any]]) -> None:
    """What can be done with runs of GANs."""
    studios = {label: Studio(cast(GanRun, run)) for label, run in runs.items()}
    with gr.Tab("Draw"):
        _draw_tab(page, studios)
    with gr.Tab("Interpolate") as tab:
        _way_tab(tab, studios)
    if any(len(studio.tasks) > 1 for studio in studios.values()) or len(studios) > 1:
        with gr.Tab("Before and after") as tab:
            _history_tab(tab, studios)


@dataclass(frozen=True)
class Controls:
    """What every tab asks for: which run and task, how many images, from which noise."""

    run: gr.Dropdown
    task: gr.Radio | gr.Dropdown
    count: gr.Slider
    seed: gr.Number
    another: gr.Button

    def follow_run(self, studios: Studios) -> None:
        """Offer the tasks of the run that is chosen."""
        self.run.change(lambda label: _tasks_update(studios[label]), self.run, self.task, api_visibility="private")

    def on_change(self, show: Callable[..., Any], inputs: list[Any], outputs: Any, tab: Any) -> None:
        """Draw when the tab is opened and whenever something is chosen; of a slider on the move, the last value."""
        self.another.click(lambda: random.randint(0, LARGEST_SEED), None, self.seed, api_visibility="private")
        triggers = [tab.load if isinstance(tab, gr.Blocks) else tab.select]
        triggers += [each.change for each in inputs]
        gr.on(
            triggers, answering(show), inputs, outputs, show_progress="minimal", api_visibility="private",
            trigger_mode="always_last",
        )  # fmt: skip


def _controls(studios: Studios, name: str, count: tuple[int, int], tasks: list[str] | None = None) -> Controls:
    """count: how many images at first, and at most. tasks: those of all runs, where none of the runs is chosen."""
    labels, one = list(studios), tasks is None and len(studios) > 1
    tasks = tasks or _first(studios).tasks
    kind = gr.Radio if len(tasks) <= FEW else gr.Dropdown
    return Controls(
        run=gr.Dropdown(labels, value=labels[0], label="Run", visible=one, elem_id=f"{name}-run"),
        task=kind(tasks, value=tasks[0], label="Task", elem_id=f"{name}-task"),
        count=gr.Slider(1, count[1], value=count[0], step=1, label="Images", elem_id=f"{name}-count"),
        **_seed_row(name),
    )


def _seed_row(name: str) -> dict[str, Any]:
    with gr.Row(elem_classes="eft-seed"):
        seed = gr.Number(0, label="Seed", precision=0, minimum=0, min_width=120, elem_id=f"{name}-seed")
        another = gr.Button("Another seed", min_width=120, elem_id=f"{name}-another", elem_classes="eft-button")
    return {"seed": seed, "another": another}


def _tasks_update(studio: Studio) -> Any:
    return gr.update(choices=studio.tasks, value=studio.tasks[0])


def _draw_tab(page: gr.Blocks, studios: Studios) -> None:
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            controls = _controls(studios, "draw", (16, 64))
            truncation = gr.Slider(
                0.25, UNTRUNCATED, value=UNTRUNCATED, step=0.05, label="Truncation", elem_id="draw-truncation",
                info="Noise within so many deviations: smaller is more typical, less varied; 3 is no limit.",
            )  # fmt: skip
            with gr.Group(visible=_first(studios).mixable) as own:
                strength = gr.Slider(
                    0, 1.5, value=1, step=0.05, label="Strength of the task", elem_id="draw-strength",
                    info="1 is the task, 0 the base network without what the task added, more overdoes it.",
                )  # fmt: skip
                partner = gr.Dropdown(
                    [NO_PARTNER, *_first(studios).tasks], value=NO_PARTNER, label="Mix with", elem_id="draw-partner"
                )
                share = gr.Slider(0, 1, value=0.5, step=0.05, label="Its share", elem_id="draw-share", visible=False)
        with gr.Column(scale=3, min_width=320, elem_classes="eft-result"):
            drawn = gr.HTML(elem_id="drawn")

    def draw(label: str, task: str, count: float, seed: float, truncation: float, *mix: Any) -> str:
        partner, share, strength = mix
        studio, wanted = studios[label], order(count, seed, truncation)
        task, partner = studio.known(task), partner if partner in studio.tasks else NO_PARTNER
        still = Still(task, partner, share, strength) if studio.mixable else Still(task)
        figure = Figure(studio.grid(still.subject(), wanted), "png", f"{wanted.count} images of {task}")
        return markup.picture(figure) + markup.command(command_words(studio.run.folder.path, still, wanted))

    def offer(label: str) -> list[Any]:
        studio = studios[label]
        return [gr.update(visible=studio.mixable), gr.update(choices=[NO_PARTNER, *studio.tasks], value=NO_PARTNER)]

    controls.follow_run(studios)
    controls.run.change(offer, controls.run, [own, partner], api_visibility="private")
    partner.change(lambda name: gr.update(visible=name != NO_PARTNER), partner, share, api_visibility="private")
    first = [controls.run, controls.task, controls.count, controls.seed, truncation]
    controls.on_change(draw, [*first, partner, share, strength], drawn, page)


def _first(studios: Studios) -> Studio:
    return next(iter(studios.values()))


def _way_tab(tab: gr.Tab, studios: Studios) -> None:
    noise_only = "the same task, other noise"
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            controls = _controls(studios, "way", (4, 8))
            target = gr.Dropdown(
                [noise_only, *_targets(_first(studios))], value=noise_only, label="On the way to", elem_id="way-target",
                info="Another task keeps the noise, and moves from what one task owns to what the other does.",
            )  # fmt: skip
            steps = gr.Slider(3, 24, value=9, step=1, label="Frames", elem_id="way-steps")
        with gr.Column(scale=3, min_width=320, elem_classes="eft-result"):
            drawn = gr.HTML(elem_id="way")

    def draw(label: str, task: str, count: float, seed: float, target: str, steps: float) -> str:
        studio, wanted = studios[label], order(count, seed)
        task = studio.known(task)
        way = Way(task, None if target == task or target not in _targets(studio) else target)
        animation, strip = studio.way(way.subject(), wanted, int(steps))
        says = f"{task} on the way to {target}, {int(steps)} frames"
        return (
            markup.picture(Figure(animation, "webp", says))
            + markup.picture(Figure(strip, "png", f"{says}, side by side"), wide=True)
            + markup.command(command_words(studio.run.folder.path, way, wanted, int(steps)))
        )

    def offer(label: str) -> Any:
        return gr.update(choices=[noise_only, *_targets(studios[label])], value=noise_only)

    controls.follow_run(studios)
    controls.run.change(offer, controls.run, target, api_visibility="private")
    inputs = [controls.run, controls.task, controls.count, controls.seed, target, steps]
    controls.on_change(draw, inputs, drawn, tab)


def _targets(studio: Studio) -> list[str]:
    return [*studio.tasks, BASE_CHOICE] if studio.mixable else []


def _history_tab(tab: gr.Tab, studios: Studios) -> None:
    names = list(dict.fromkeys(task for studio in studios.values() for task in studio.tasks))
    explained = "A column per run, and below each other the task as drawn after each task learned since, same noise."
    with gr.Row():
        with gr.Column(scale=2, min_width=280):
            controls = _controls(studios, "history", (8, 16), names)
        with gr.Column(scale=5, min_width=320, elem_classes="eft-result"):
            drawn = gr.HTML(elem_id="history")

    def draw(task: str, count: float, seed: float) -> str:
        wanted = order(count, seed)
        content = {label: history(studio, task, wanted) for label, studio in studios.items() if task in studio.tasks}
        return markup.columns(real_images(studios, task) | content) + markup.note(explained)

    controls.on_change(draw, [controls.task, controls.count, controls.seed], drawn, tab)
