"""GANs as a kind of experiment: from the config to the report."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from eftgan.data.processes import Processes
from eftgan.data.sequences import converted_set, data_record
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.metrics import METRICS
from eftgan.evaluation.nearest import Nearest, nearest_earlier
from eftgan.gan.experiment import GanExperiment, GanTask, open_tasks
from eftgan.gan.networks import build_networks
from eftgan.gan.run import GanRun
from eftgan.gan.scorer import RunScorer, score_growth, statistics_folder
from eftgan.gan.trainer import GanTrainer
from eftgan.gan.watch import Watch
from eftgan.names import counted
from eftgan.reports.lines import score_lines
from eftgan.reports.write import write_report
from eftgan.training.kind import Kind, Session

REPORT_EVERY = 50  # tasks; up to that many there is a report after each


class GanKind(Kind[GanExperiment, GanTask, GanRun]):
    """Generators trained on one collection of images after another."""

    name: ClassVar[str] = "gan"
    sequence_key: ClassVar[str] = "tasks"
    usual_methods: ClassVar[tuple[str, ...]] = ("finetune", "ewc", "mergan", "eft", "separate")
    verb: ClassVar[str] = "sample"
    tuning_metrics: ClassVar[tuple[str, ...]] = ("KID", "FID", "KID-random", "FD-random")
    faster: ClassVar[tuple[str, ...]] = ("fast_upsampling", "fast_codes", "fused_adam")
    experiment_type = GanExperiment
    run_type = GanRun

    def open_tasks(self, experiment: GanExperiment, processes: int) -> list[GanTask]:
        return open_tasks(experiment, processes)

    def build_networks(self, experiment: GanExperiment, tasks: Sequence[GanTask]) -> dict[str, nn.Module]:
        return build_networks(experiment)

    def data_records(self, experiment: GanExperiment, tasks: Sequence[GanTask]) -> dict[str, dict[str, str]]:
        typed = {task.name: task.data for task in experiment.tasks}
        return {
            task.name: data_record(typed[task.name], task.images.digest, converted_set(task.images))
            for task in tasks
            if task.is_open
        }

    def find_nearest(
        self, experiment: GanExperiment, tasks: Sequence[GanTask], wanted: Sequence[str]
    ) -> Mapping[str, Nearest]:
        return nearest_earlier({task.name: task.images for task in tasks}, wanted, self.image_size(experiment))

    def first_tasks(self, data: dict[str, Any], count: int) -> dict[str, Any]:
        return {"tasks": data["tasks"][:count]}

    def shortened(self, data: dict[str, Any], share: float) -> dict[str, Any]:
        training = _shortened(data.get("training") or {}, share)
        if training.get("first"):
            training["first"] = _shortened(training["first"], share)
        return {"tasks": [_shortened(task, share) for task in data["tasks"]], "training": training}

    def limited(self, data: dict[str, Any], images: int) -> dict[str, Any]:
        return {"tasks": [{**task, "limit": min(images, task.get("limit") or images)} for task in data["tasks"]]}

    def length(self, experiment: GanExperiment) -> str:
        usual = experiment.training
        lengths = {}
        for task in experiment.tasks:
            steps, epochs = task.steps or (None if task.epochs else usual.steps), task.epochs or usual.epochs
            lengths[task.name] = counted(steps, "step") if steps else counted(epochs or 0, "epoch")
        if len(set(lengths.values())) == 1:
            return f"{next(iter(lengths.values()))} per task"
        return ", ".join(f"{name} {length}" for name, length in lengths.items())

    def image_size(self, experiment: GanExperiment) -> int:
        return experiment.network.sizes[-1]

    def shares_first_task(self, experiment: GanExperiment) -> bool:
        return True  # all methods have the same networks

    def unmeasured(self, data: dict[str, Any]) -> dict[str, Any]:
        training, evaluation = data.get("training") or {}, data.get("evaluation") or {}
        if training.get("selection", "last") != "last" or training.get("until", "steps") != "steps":
            return {}  # what is measured decides what is learned
        return {"evaluation": {**evaluation, "features": "none", "every_steps": None}}

    def measure(self, run: GanRun, metric: str, tasks: Sequence[str], cache: Path) -> None:
        extractor = _extractor(METRICS[metric].features or "random")
        RunScorer(run, extractor, run.experiment.evaluation.samples, cache).score(len(run.trained) - 1, tasks)

    def accumulation(self, experiment: GanExperiment) -> int:
        return experiment.training.accumulation

    def make_trainer(self, session: Session[GanExperiment, GanTask, GanRun]) -> GanTrainer:
        experiment, run, accelerator = session.experiment, session.run, session.accelerator

        def after_task(index: int) -> None:
            measuring = scorer(run)
            if accelerator.is_main_process:
                score_growth(run, index, session.networks)
                finish_task(run, index, measuring)
            elif measuring:
                measuring.features.help()
            accelerator.wait_for_everyone()

        return GanTrainer(
            accelerator=accelerator,
            networks=session.networks,
            method=experiment.method,
            options=experiment.training,
            family=experiment.network,
            seed=experiment.seed,
            folder=run.folder,
            start=session.start,
            starts=session.starts,
            watch=watch(run),
            after_task=after_task,
        )


def finish_task(run: GanRun, index: int, measuring: RunScorer | None) -> None:
    """Grids, scores and the report after one task; what is there already is not made again."""
    run.draw_grids(index)
    if measuring:
        wanted = [run.tasks[index]] if run.keeps_tasks else None
        if measuring.score(index, wanted):
            print(*score_lines(run.folder.path, index), sep="\n", flush=True)
        measuring.features.dismiss()
    newest = index == len(run.trained) - 1  # a continued run passes its earlier tasks without a report for each
    if newest and (index < REPORT_EVERY or (index + 1) % REPORT_EVERY == 0 or index == len(run.tasks) - 1):
        write_report([run.folder.path], run.folder.report)


def scorer(run: GanRun) -> RunScorer | None:
    """What measures a run as its config says, with the help of all processes; none where it says not to."""
    evaluation = run.experiment.evaluation
    if evaluation.features == "none":
        return None
    extractor, processes = _extractor(evaluation.features), Processes.present()
    return RunScorer(run, extractor, evaluation.samples, statistics_folder(run), processes=processes)


def watch(run: GanRun) -> Watch | None:
    """What measures a run while its tasks train; none where its config does not ask for it."""
    evaluation = run.experiment.evaluation
    if evaluation.every_steps is None:
        return None
    extractor, processes = _extractor(evaluation.features), Processes.present()
    return Watch(run=run, extractor=extractor, cache=statistics_folder(run), processes=processes)


def _shortened(lengths: dict[str, Any], share: float) -> dict[str, Any]:
    """A mapping whose `steps` and `epochs`, where it has some, are a share of what they were."""
    own = {key: max(1, round(lengths[key] * share)) for key in ("steps", "epochs") if lengths.get(key)}
    return {**lengths, **own}


_extractor = functools.cache(load_extractor)
GAN = GanKind()
train_gan = GAN.train
