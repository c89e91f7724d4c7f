"""Score lines of a classifier run: accuracies on every seen task after every task, growth and seconds."""

import dataclasses
from functools import partial

import torch
from torch import Tensor, nn

from eftgan.adapters import task_state
from eftgan.classifier.run import ClassifierRun
from eftgan.classifier.trainer import check_head
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import CIL, TASK, TIL, accuracies
from eftgan.evaluation.growth import growth
from eftgan.evaluation.rules import AUTO, Said, rule_named
from eftgan.evaluation.task_inference import (
    SPACES,
    completed,
    image_batches,
    said_by_task,
    shares_features,
)
from eftgan.files import file_digest
from eftgan.scores import Score, append_scores, read_scores
from eftgan.tensors import read_tensors, tensors_digest, write_tensors


class ClassifierScorer:
    """Measures a run after a task; logits of unchanged weights are taken from the folder."""

    def __init__(self, run: ClassifierRun, device: torch.device | str = "cpu") -> None:
        self.run, self.device = run, device

    def score(self, through: int, record: dict[str, float]) -> bool:
        """Append the lines of one task, unless they are there: accuracies on all seen tasks, growth, seconds.

        Whether there were new ones is returned. Where own parts of earlier tasks go on changing, what these add is
        counted again.

        Lines of other weights than those of now, from a training before this one, do not count. A task whose test
        images are gone is left out. `record` is empty where the task's training was not seen.
        """
        name = self.run.tasks[through]
        weights = file_digest(self.run.folder.task_file(through, name))
        rule = self.run.inference
        before = [line for line in read_scores(self.run.folder.scores) if line.trained_through == name]
        measured = {  # by accuracies alone: lines of seconds are not written anew with every rule, and outlive it
            (line.details.get("weights"), line.details.get("inference", AUTO))
            for line in before
            if line.metric in (TIL, CIL, TASK)
        }
        if (weights, rule) in measured:  # all lines of a task are written at once
            return False
        there = self.there(through)
        if before and not there:  # nothing to measure
            return False
        model = self.model(through)
        lines = [line for tested in there for line in self._accuracies(model, through, tested)]
        if record:
            lines.append(self._seconds(through, record))
        subject = {"weights": weights} | ({"inference": rule} if rule != AUTO else {})
        lines = [dataclasses.replace(line, details=line.details | subject) for line in lines]
        changed = range(through + 1) if self.run.experiment.method.own_parts_change else [through]
        append_scores(self.run.folder.scores, [*(self._growth(model, through, each) for each in changed), *lines])
        return True

    def model(self, through: int) -> nn.Module:
        """The classifier after a task, checked to fit the data."""
        model = self.run.classifier(through).to(self.device)
        for task in self.run.labelled[: through + 1]:
            check_head(model, task, self.run.experiment.method.outputs_per_class)
        return model

    def there(self, through: int) -> list[int]:
        """The places of the seen tasks whose test images can be read."""
        return [tested for tested in range(through + 1) if self._has_images(tested)]

    def _has_images(self, tested: int) -> bool:
        """Whether the task's test images can be read; a line says why not."""
        try:
            return len(self.run.labelled[tested].test) > 0
        except UserError as error:
            print(f"{self.run.tasks[tested]}: not measured: {error}")
            return False

    def _accuracies(self, model: nn.Module, through: int, tested: int) -> list[Score]:
        seen = self.run.tasks[: through + 1]
        shares, carried = self.shares(model, through, tested, self.run.inference)
        details = {"selection": self.run.experiment.training.selection}
        further = {TIL: {"carried": seen[tested] in carried}}
        test = self.run.labelled[tested].test
        return [
            self._line(through, tested, metric, value, len(test), details | further.get(metric, {}))
            for metric, value in shares.items()
        ]

    def shares(self, model: nn.Module, through: int, tested: int, inference: str) -> tuple[dict[str, float], set[str]]:
        """Accuracies on one task's test images under a rule, and the tasks whose logits an earlier measurement left."""
        seen = self.run.tasks[: through + 1]
        rule = rule_named(inference, shares_features(model, seen))
        kept = self.run.kept.of(rule, seen, model)  # before anything is said of test images
        said, carried = self._said(model, seen, tested, "features" in rule.asks)
        spaces = {name: self._in_space(name, model, tested) for name in SPACES if name in rule.asks}
        said = completed(said, spaces, kept)
        logits, by_class = [each.logits for each in said], [rule.class_scores(each) for each in said]
        labels = self.run.labelled[tested].test.targets
        return accuracies(logits, tested, labels, rule.scores(said).argmax(0), by_class), carried

    def _said(self, model: nn.Module, seen: list[str], tested: int, features: bool) -> tuple[list[Said], set[str]]:
        """What every seen task says of one task's test images, and whose an earlier task's measurement left."""
        method, test = self.run.experiment.method, self.run.labelled[tested].test
        theta = {task: tensors_digest(method.theta(model, task)) for task in (seen if method.chained else seen[:1])}
        digests = {
            task: f"{theta.get(task, theta[seen[0]])} {tensors_digest(task_state(model, task))} {len(test)}"
            for task in seen
        }
        folder = self.run.folder.path / "logits" / self.run.tasks[tested]
        files = {task: folder / f"{task}.safetensors" for task in seen}
        known: dict[str, Said] = {}
        carried = set()
        for task in seen:
            if files[task].exists():
                tensors, facts = read_tensors(files[task])
                if facts.get("weights") == digests[task] and (not features or "features" in tensors):
                    known[task] = Said(tensors["logits"], tensors.get("features"))
                    if facts.get("after") != seen[-1]:  # else this measurement was begun before and cut short
                        carried.add(task)
        missing = [task for task in seen if task not in known]
        if missing:
            batches = partial(image_batches, test, self.run.experiment.pixels, self.device)
            turns = self.run.experiment.method.outputs_per_class
            for task, said in zip(missing, said_by_task(model, missing, batches, turns), strict=True):
                wanted = {"logits": said.logits, "features": said.features if features else None}
                tensors = {name: each.float().cpu() for name, each in wanted.items() if each is not None}
                known[task] = Said(tensors["logits"], tensors.get("features"))
                write_tensors(files[task], tensors, {"weights": digests[task], "after": seen[-1]})
        return [known[task] for task in seen], carried

    def _in_space(self, name: str, model: nn.Module, tested: int) -> Tensor:
        """One task's test images in a space of all tasks, from the folder if they were there before."""
        first, test = self.run.tasks[0], self.run.labelled[tested].test
        state = {**self.run.experiment.method.theta(model, first), **task_state(model, first)}
        digest = f"{tensors_digest(state)} {len(test)}"
        path = self.run.folder.path / "logits" / self.run.tasks[tested] / f"{name} space.safetensors"  # no task's name
        if path.exists():
            tensors, facts = read_tensors(path)
            if facts.get("weights") == digest:
                return tensors["features"]
        batches = partial(image_batches, test, self.run.experiment.pixels, self.device)
        found = SPACES[name](model, first, batches).float().cpu()
        write_tensors(path, {"features": found}, {"weights": digest})
        return found

    def _growth(self, model: nn.Module, through: int, task: int) -> Score:
        """What a task adds, as it is after another."""
        run, size = self.run, self.run.experiment.network.size
        file = run.folder.task_file(task, run.tasks[task])
        counts = growth(model, (3, size, size), run.tasks[task])
        details = {key: value for key, value in dataclasses.asdict(counts).items() if key != "layers"}
        details["bytes_shared"] = details.pop("bytes_base")
        kept = run.kept.added(rule_named(run.inference), run.tasks[task])
        details["kept_parameters"] = sum(tensor.numel() for tensor in kept.values())
        details["bytes_task"] = file.stat().st_size
        return self._line(through, task, "growth", counts.parameter_growth, 0, details)

    def _seconds(self, through: int, record: dict[str, float]) -> Score:
        figures = {key: value for key, value in record.items() if key not in ("seconds", "steps")}
        return self._line(through, through, "seconds", record["seconds"], int(record["steps"]), figures)

    def _line(self, through: int, tested: int, metric: str, value: float, n: int, details: dict) -> Score:
        run, experiment = self.run, self.run.experiment
        head = (run.folder.path.name, experiment.method.name, experiment.seed)
        return Score(*head, run.tasks[through], run.tasks[tested], metric, value, n, details)
