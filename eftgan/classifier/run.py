"""Run folders of classifier training, read back: the classifier after any task, and what it says of an image."""

import functools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from eftgan.adapters import task_names
from eftgan.adapters.bank import tasks_share_batches
from eftgan.classifier.experiment import ClassifierExperiment, open_classes
from eftgan.classifier.kept import KeptStatistics
from eftgan.classifier.networks import build_network
from eftgan.data.splits import LabelledTask
from eftgan.errors import UserError
from eftgan.evaluation.rules import Rule, Said, rule_named
from eftgan.evaluation.task_inference import (
    SPACES,
    completed,
    logits_together,
    said_by_task,
    shares_features,
)
from eftgan.files import write_json
from eftgan.names import CLASSIFIER
from eftgan.reports.lines import final_lines
from eftgan.training.checkpoint import read_shared, read_task
from eftgan.training.run import SavedRun

Verdict = tuple[str, list[tuple[str, float]]]  # the task that is believed, and its classes by probability


@dataclass(frozen=True)
class Answer:
    """What one task says of an image."""

    task: str
    certainty: float  # 0 to 1; the most certain task is believed
    ranked: list[tuple[str, float]]  # its classes by probability


class ClassifierRun(SavedRun[ClassifierExperiment]):
    """A run of classifier training."""

    experiment_type = ClassifierExperiment
    pipeline = "image-classification"
    tags = ("image-classification",)

    @property
    def classes(self) -> dict[str, list[str]]:
        """Names of the classes of every task, in the order of its head's outputs."""
        return self.folder.read_classes()

    @functools.cached_property
    def inference(self) -> str:
        """The rule by which tasks are inferred: the config's, until another is set here."""
        return self.experiment.inference

    @functools.cached_property
    def kept(self) -> KeptStatistics:
        """What the tasks keep for rules of inference."""
        return KeptStatistics(self)

    @functools.cached_property
    def labelled(self) -> list[LabelledTask]:
        """The tasks with their images and class names."""
        return open_classes(self.experiment)

    def classifier(self, after: int, tasks: Sequence[str] | None = None) -> nn.Module:
        """The classifier as it was when task number `after` (from 0) was trained, in eval mode.

        tasks: those that it is wanted for (all that were seen by then); of frozen shared weights, no others are read.
        """
        network = self._without_tasks()
        indices = [after]
        if self.keeps_tasks:
            read_shared(self.folder, {CLASSIFIER: network})
            indices = self.needed(tasks or self.tasks[: after + 1])
        for index in indices:
            read_task(self.folder, index, self.tasks[index], CLASSIFIER, network, self.experiment.method)
        return network.eval()

    @functools.cached_property
    def has_features(self) -> bool:
        """Whether every task's head reads one vector of features, and nothing beside it."""
        return tasks_share_batches(self._without_tasks())

    def _without_tasks(self) -> nn.Module:
        return build_network(self.experiment, len(self.classes[self.tasks[0]]), pretrained=False)

    def classify(self, image: Tensor, task: str | None = None) -> Verdict:
        """The task of a uint8 (3, S, S) image (inferred if not given) and its classes by probability."""
        return self.asker(task)(image)

    def asker(self, task: str | None = None) -> Callable[[Tensor], Verdict]:
        """What classifies one image after another, with the network built once.

        With the task given nothing is inferred: its logits decide, as in accuracy-TIL, and no other file is needed.
        """
        if task is not None:
            return self._asker_of(self.trained[self.index(task)])
        names = self.present
        network = self.classifier(len(self.trained) - 1, names)
        self.kept.of(self._rule(network, names), names, network)  # what cannot be used is refused before any image

        def classify(image: Tensor) -> Verdict:
            answers, found = self.answers(image, network, names)
            return answers[found].task, answers[found].ranked

        return classify

    def _asker_of(self, task: str) -> Callable[[Tensor], Verdict]:
        network, turns = self.classifier(len(self.trained) - 1, [task]), self.experiment.method.outputs_per_class

        def classify(image: Tensor) -> Verdict:
            (logits,) = logits_together(network, [task], self.experiment.pixels(image[None]), turns)
            return task, self._ranked(task, logits)

        return classify

    def answers(self, image: Tensor, network: nn.Module, tasks: Sequence[str]) -> tuple[list[Answer], int]:
        """What each task says of a uint8 (3, S, S) image, and the place of the one that is believed."""
        x, turns, asked = self.experiment.pixels(image[None]), self.experiment.method.outputs_per_class, list(tasks)
        rule = self._rule(network, asked)
        kept = self.kept.of(rule, asked, network)
        if "features" in rule.asks:
            said = said_by_task(network, asked, lambda: [x], turns)
        else:
            said = [Said(logits) for logits in logits_together(network, asked, x, turns)]
        said = completed(said, self._in_spaces(network, x, rule), kept)
        answers = []
        for task, own, sure in zip(tasks, said, rule.certainties(said)[:, 0].tolist(), strict=True):
            answers.append(Answer(task, sure, self._ranked(task, rule.class_scores(own))))
        return answers, int(rule.scores(said).argmax(0))

    def _ranked(self, task: str, scores: Tensor) -> list[tuple[str, float]]:
        """A task's classes by probability, from its scores (1, classes)."""
        shares = zip(self.classes[task], scores[0].softmax(0).tolist(), strict=True)
        return sorted(shares, key=lambda pair: -pair[1])

    def _rule(self, network: nn.Module, tasks: list[str]) -> Rule:
        return rule_named(self.inference, shares_features(network, tasks))

    def _in_spaces(self, network: nn.Module, x: Tensor, rule: Rule) -> dict[str, Tensor]:
        """The image where the rule wants to see it in the first task's network."""
        asked, first = [name for name in SPACES if name in rule.asks], self.tasks[0]
        if asked and first not in task_names(network):
            network = self.classifier(len(self.trained) - 1, [first])
        return {name: SPACES[name](network, first, lambda: [x]) for name in asked}

    def export(self, task: str, out: Path) -> list[str]:
        from eftgan.classifier.export import export_classifier

        return export_classifier(self, task, out)

    def example(self, task: str) -> list[str]:
        size = self.experiment.network.size
        return [f"task, ranked = run.classify(image)  # uint8 (3, {size}, {size}); classes with their probabilities"]

    def command(self, task: str) -> str:
        return "eftgan classify hf:{name} --image photo.jpg"

    def describe_network(self) -> str:
        return f"{self.experiment.network.name}, {self.experiment.network.size} pixels"

    def data_of(self, index: int) -> str:
        return ", ".join(self.classes.get(self.tasks[index], ["classes not known yet"]))

    def summary(self) -> str:
        """What came out, and what a person does next."""
        last, path = len(self.trained) - 1, shlex.quote(str(self.folder.path))
        return "\n".join([
            f"\n{last + 1} tasks trained: {', '.join(self.trained)}",
            *(f"  {line}" for line in final_lines(self.folder.path, last)),
            f"  report   {self.folder.report}",
            "next:",
            f"  eftgan classify {path} --image photo.jpg    # or a folder of them",
            f"  eftgan report {path} OTHER_RUN ...",
        ])  # fmt: skip


def note_classes(run: ClassifierRun, tasks: Sequence[LabelledTask]) -> None:
    """Write down the tasks' classes; refuse data that has others than the run was started with."""
    before, now = run.classes, {task.name: task.classes for task in tasks}
    for name, classes in before.items():
        if now.get(name, classes) != classes:
            raise UserError(
                f"{run.folder.path}: task {name} has the classes {', '.join(classes)}, the data has "
                f"{', '.join(now[name])}; use the data that the run was started with"
            )
    write_json(run.folder.classes, before | now)
