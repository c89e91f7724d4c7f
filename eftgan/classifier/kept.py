"""What the tasks of a run keep for a rule of task inference: fitted on each task's own training images, no others."""

import dataclasses
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from eftgan.adapters.bank import tasks_share_batches
from eftgan.adapters.taskfile import read_task_file
from eftgan.data.labelled import LabelledImages
from eftgan.data.pixels import Pixels
from eftgan.errors import UserError
from eftgan.evaluation.rules import AUTO, RULES, Rule, Said
from eftgan.evaluation.task_inference import SPACES, image_batches, said_by_task
from eftgan.files import file_digest
from eftgan.methods import Method
from eftgan.names import INFERENCE
from eftgan.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from eftgan.classifier.run import ClassifierRun


NO_FEATURES = (
    "looks at what a task's output layer reads, which here is not one vector of features (columns, side networks or "
    "units of its own)"
)


def look(
    model: nn.Module,
    tasks: Sequence[str],
    images: LabelledImages,
    pixels: Pixels,
    turns: int,
    asks: AbstractSet[str],
    before: Said | None = None,
) -> Said:
    """What the last of the tasks says of its training images, looked at without augmentation.

    asks: what a rule asks for; spaces among it are of the first task's network, which later tasks leave as it was.
    before: what an earlier look at the same images found, which is not looked for again.
    """
    batches = partial(image_batches, images, pixels, next(model.parameters()).device)
    if before is None:
        (said,) = said_by_task(model, [tasks[-1]], batches, turns)
        before = Said(said.logits.float().cpu(), None if said.features is None else said.features.float().cpu())
    new = [name for name in SPACES if name in asks and getattr(before, name) is None]
    spaces = {name: SPACES[name](model, tasks[0], batches).float().cpu() for name in new}
    return dataclasses.replace(before, **spaces, kept=before.kept)


def require_features(rule: Rule, model: nn.Module) -> None:
    """Refuse a rule that looks at features where a head reads more than those of one trunk."""
    if rule.asks and not tasks_share_batches(model):
        raise _refusal(NO_FEATURES, [name for name, each in RULES.items() if not each.asks])


def _refusal(why: str, others: Sequence[str]) -> UserError:
    return UserError(f"inference: this rule {why}; choose one that does not: {', '.join([AUTO, *others])}")


class KeptStatistics:
    """Of a run: from the tasks' files, and where these have none for a rule, fitted and written beside them."""

    def __init__(self, run: "ClassifierRun") -> None:
        self.run = run
        self._known: dict[str, dict[str, Tensor]] = {}  # by task, what was asked for so far
        self._looked: tuple[str, Said] | None = None  # the task whose training images were looked at last

    def obstacle(self, rule: Rule) -> str | None:
        """Why the rule cannot be used on this run, in words that follow "this rule"; none where it can."""
        if rule.keeps and not self.run.keeps_tasks:
            return (
                f"has every task keep something, which no longer holds where {self.run.experiment.method.name} goes on "
                "changing the weights that tasks share"
            )
        return NO_FEATURES if rule.asks and not self.run.has_features else None

    def require(self, rule: Rule) -> None:
        """Refuse a rule that cannot be used on this run."""
        if why := self.obstacle(rule):
            raise _refusal(why, [name for name, each in RULES.items() if self.obstacle(each) is None])

    def of(self, rule: Rule, tasks: Sequence[str], model: nn.Module | None = None) -> list[dict[str, Tensor]]:
        """By task, what the rule needs: its own, what the first task keeps for all, and what the last one handed on.

        model: the classifier, for tasks that the rule must be fitted to.
        """
        self.require(rule)
        for_all = self._for_all(rule, self.run.tasks.index(tasks[-1]), model)
        return [{**self._of_task(rule, task, model), **for_all} for task in tasks]

    def stored(self, rule: Rule, task: str) -> dict[str, Tensor]:
        """What the task keeps for the rule, as far as it was fitted: from its file, or from the one beside it."""
        known, index = self._known.setdefault(task, {}), self.run.tasks.index(task)
        names, path = rule.kept_by(index), self.run.folder.task_file(index, task)
        if missing(names, known):
            known |= read_task_file(path).states.get(INFERENCE, {})
        if missing(names, known):
            known |= self._beside(index, task, path)
        return {key: known[key] for key in names if key in known}

    def stored_bytes(self, rule: Rule, tasks: Sequence[str]) -> int:
        """What a run of these tasks needs for the rule, all together."""
        return sum(tensor.nbytes for task in tasks for tensor in self.added(rule, task).values())

    def added(self, rule: Rule, task: str) -> dict[str, Tensor]:
        """What a run needs more for this task, as far as it was fitted."""
        names = rule.added_by(self.run.tasks.index(task))
        return {key: tensor for key, tensor in self.stored(rule, task).items() if key in names}

    def _for_all(self, rule: Rule, last: int, model: nn.Module | None) -> dict[str, Tensor]:
        """What the first task keeps for all, and what a task, by its place, hands on."""
        found: dict[str, Tensor] = {}
        for names, place in ((rule.first_keeps, 0), (rule.hands_on, last)):
            own = self._of_task(rule, self.run.tasks[place], model) if names else {}
            found |= {key: own[key] for key in names}
        return found

    def _of_task(self, rule: Rule, task: str, model: nn.Module | None) -> dict[str, Tensor]:
        index, kept = self.run.tasks.index(task), self.stored(rule, task)
        if missing(rule.kept_by(index), kept):
            self._fit(rule, index, task, model)
            kept = self.stored(rule, task)
        return kept

    def _beside(self, index: int, task: str, path: Path) -> dict[str, Tensor]:
        """From the file beside the task's; nothing where there is none, or one of other weights."""
        beside = self.run.folder.inference_file(index, task)
        if not beside.exists():
            return {}
        tensors, facts = read_tensors(beside)
        return tensors if facts.get("weights") == file_digest(path) else {}

    def _fit(self, rule: Rule, index: int, task: str, model: nn.Module | None) -> None:
        """Write what the task has to keep for the rule to the file beside the task's."""
        for_all = self._for_all(rule, index - 1, model) if index else {}
        images, path = self._training_images(task), self.run.folder.task_file(index, task)
        own = dataclasses.replace(self._look(rule, index, images, model), kept=for_all)
        kept = self._beside(index, task, path) | rule.fit(own, images.targets)
        write_tensors(self.run.folder.inference_file(index, task), kept, {"weights": file_digest(path)})
        self._known[task] |= kept

    def _look(self, rule: Rule, index: int, images: LabelledImages, model: nn.Module | None) -> Said:
        """One look serves all rules that are fitted to a task one after the other."""
        task = self.run.tasks[index]
        before = self._looked[1] if self._looked and self._looked[0] == task else None
        if before and all(getattr(before, name) is not None for name in rule.asks):
            return before
        model = model or self.run.classifier(len(self.run.trained) - 1, [self.run.tasks[0], task])
        experiment = self.run.experiment
        turns = experiment.method.outputs_per_class
        said = look(model, self.run.tasks[: index + 1], images, experiment.pixels, turns, rule.asks, before)
        self._looked = (task, said)
        return said

    def _training_images(self, task: str) -> LabelledImages:
        try:
            return self.run.labelled[self.run.tasks.index(task)].train
        except UserError as error:
            raise UserError(
                f"task {task} keeps nothing for this rule of inference, and its training images, which it would be "
                f"fitted on, cannot be read: {error}"
            ) from error


def missing(names: Sequence[str], kept: Mapping[str, Tensor]) -> bool:
    """Whether something that a rule needs is not there."""
    return any(name not in kept for name in names)


def keeps_own_files(method: Method) -> bool:
    """Whether a finished task of this method never changes, so that what it keeps goes on to hold."""
    return type(method).snapshot is not Method.snapshot
