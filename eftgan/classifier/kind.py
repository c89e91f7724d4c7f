"""Classifiers as a kind of experiment: from the config to the report."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from eftgan.classifier.experiment import (
    AUXILIARY,
    ClassifierExperiment,
    auxiliary_record,
    open_auxiliary,
    open_classes,
)
from eftgan.classifier.networks import build_network
from eftgan.classifier.run import ClassifierRun, note_classes
from eftgan.classifier.scorer import ClassifierScorer
from eftgan.classifier.selection import Schedule
from eftgan.classifier.trainer import ClassifierTrainer
from eftgan.config import build, plain
from eftgan.data.collection import WithoutLabels
from eftgan.data.sequences import data_record
from eftgan.data.splits import ClassSource, LabelledTask, task_names_of
from eftgan.evaluation.nearest import Nearest, nearest_earlier
from eftgan.evaluation.rules import rule_named
from eftgan.names import CLASSIFIER, counted
from eftgan.reports.lines import score_lines
from eftgan.reports.write import write_report
from eftgan.training.kind import Kind, Session


class ClassifierKind(Kind[ClassifierExperiment, LabelledTask, ClassifierRun]):
    """Classifiers trained on one set of classes after another."""

    name: ClassVar[str] = "classifier"
    sequence_key: ClassVar[str] = "sources"
    usual_methods: ClassVar[tuple[str, ...]] = ("finetune", "ewc", "lwf", "eft", "separate")
    verb: ClassVar[str] = "classify"
    tuning_metrics: ClassVar[tuple[str, ...]] = ("accuracy-CIL", "accuracy-TIL")
    faster: ClassVar[tuple[str, ...]] = ("fused_adam",)
    experiment_type = ClassifierExperiment
    run_type = ClassifierRun

    def open_tasks(self, experiment: ClassifierExperiment, processes: int) -> list[LabelledTask]:
        return open_classes(experiment)

    def build_networks(self, experiment: ClassifierExperiment, tasks: Sequence[LabelledTask]) -> dict[str, nn.Module]:
        return {CLASSIFIER: build_network(experiment, len(tasks[0].classes))}

    def data_records(
        self, experiment: ClassifierExperiment, tasks: Sequence[LabelledTask]
    ) -> dict[str, dict[str, str]]:
        digests = {task.name: task.train.digest for task in tasks if task.is_open}
        records = {
            source.name: data_record(source.data, digests.get(task_names_of(source)[0]))
            for source in experiment.class_sources
        }
        if (auxiliary := auxiliary_record(experiment)) is not None:
            records[AUXILIARY] = auxiliary
        return records

    def find_nearest(
        self, experiment: ClassifierExperiment, tasks: Sequence[LabelledTask], wanted: Sequence[str]
    ) -> Mapping[str, Nearest]:
        images = {task.name: WithoutLabels(task.train) for task in tasks}
        return nearest_earlier(images, wanted, self.image_size(experiment))

    def first_tasks(self, data: dict[str, Any], count: int) -> dict[str, Any]:
        sources, left = [], count
        for source in data["sources"]:
            tasks = len(task_names_of(ClassSource(source["name"], source["data"], source.get("take"))))
            sources += [{**source, "take": min(tasks, left)}] * (left > 0)
            left -= tasks
        return {"sources": sources}

    def shortened(self, data: dict[str, Any], share: float) -> dict[str, Any]:
        training = data.get("training") or {}
        schedules = {"first": Schedule(), "later": None} | {
            part: build(Schedule, dict(given), f"training.{part}")
            for part in ("first", "later")
            if (given := training.get(part)) is not None
        }
        shorter = {part: plain(schedule.shortened(share)) for part, schedule in schedules.items() if schedule}
        return {"training": {**training, **shorter}}

    def limited(self, data: dict[str, Any], images: int) -> dict[str, Any]:
        return {"limit": images}

    def length(self, experiment: ClassifierExperiment) -> str:
        first, later = experiment.training.first, experiment.training.later
        epochs = counted(first.epochs, "epoch")
        return epochs if later is None or later.epochs == first.epochs else f"{epochs}, then {later.epochs:g} per task"

    def image_size(self, experiment: ClassifierExperiment) -> int:
        return experiment.network.size

    def shares_first_task(self, experiment: ClassifierExperiment) -> bool:
        return not experiment.method.owns  # else tasks have parts of their own, which fine-tuning's have not

    def begin(self, run: ClassifierRun, tasks: Sequence[LabelledTask]) -> None:
        note_classes(run, tasks)

    def make_trainer(self, session: Session[ClassifierExperiment, LabelledTask, ClassifierRun]) -> ClassifierTrainer:
        experiment, run, accelerator = session.experiment, session.run, session.accelerator
        run.labelled = session.tasks

        def after_task(index: int) -> None:
            if accelerator.is_main_process:
                record = trainer.records.get(run.tasks[index], {})
                if ClassifierScorer(run, accelerator.device).score(index, record):
                    print(*score_lines(run.folder.path, index), sep="\n", flush=True)
                write_report([run.folder.path], run.folder.report)
            accelerator.wait_for_everyone()

        trainer = ClassifierTrainer(
            accelerator=accelerator,
            networks=session.networks,
            method=experiment.method,
            options=experiment.training,
            pixels=experiment.pixels,
            rule=rule_named(experiment.inference),
            auxiliary=open_auxiliary(experiment),
            seed=experiment.seed,
            folder=run.folder,
            start=session.start,
            starts=session.starts,
            after_task=after_task,
        )
        return trainer


CLASSIFIERS = ClassifierKind()
train_classifier = CLASSIFIERS.train
