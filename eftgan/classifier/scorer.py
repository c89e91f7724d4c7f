"""Score lines of a classifier run: accuracies on every seen task after every task, growth and seconds."""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from eftgan.adapters import task_state
from eftgan.classifier.run import ClassifierRun
from eftgan.classifier.trainer import check_head
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import TIL, accuracies, chunks
from eftgan.evaluation.growth import growth
from eftgan.evaluation.task_inference import logits_by_task, shares_features
from eftgan.files import file_digest
from eftgan.scores import Score, append_scores, read_scores
from eftgan.tensors import read_tensors, tensors_digest, write_tensors


class ClassifierScorer:
    """Measures a run after a task; logits of unchanged weights are taken from the folder."""

    def __init__(self, run: ClassifierRun, device: torch.device | str = "cpu") -> None:
        self.run, self.device = run, device

    def score(self, through: int, record: dict[str, float]) -> bool:
        """Append the lines of one task, unless they are there: accuracies on all seen tasks, growth, seconds.

        Whether there were new ones is returned.

        Lines of other weights than those of now, from a training before this one, do not count. A task whose test
        images are gone is left out. `record` is empty where the task's training was not seen.
        """
        name = self.run.tasks[through]
        weights = file_digest(self.run.folder.task_file(through, name))
        known = {(line.trained_through, line.details.get("weights")) for line in read_scores(self.run.folder.scores)}
        if (name, weights) in known:  # all lines of a task are written at once
            return False
        model = self.run.classifier(through).to(self.device)
        for task in self.run.labelled[: through + 1]:
            check_head(model, task)
        there = [tested for tested in range(through + 1) if self._has_images(tested)]
        lines = [line for tested in there for line in self._accuracies(model, through, tested)]
        if record:
            lines.append(self._seconds(through, record))
        lines = [dataclasses.replace(line, details=line.details | {"weights": weights}) for line in lines]
        append_scores(self.run.folder.scores, [self._growth(model, through), *lines])
        return True

    def _has_images(self, tested: int) -> bool:
        """Whether the task's test images can be read; a line says why not."""
        try:
            return len(self.run.labelled[tested].test) > 0
        except UserError as error:
            print(f"{self.run.tasks[tested]}: not measured: {error}")
            return False

    def _accuracies(self, model: nn.Module, through: int, tested: int) -> list[Score]:
        seen, test = self.run.tasks[: through + 1], self.run.labelled[tested].test
        logits, carried = self._logits(model, seen, tested)
        shares = accuracies(logits, tested, test.targets, joined=shares_features(model, seen))
        details = {"selection": self.run.experiment.training.selection}
        further = {TIL: {"carried": seen[tested] in carried}}
        return [
            self._line(through, tested, metric, value, len(test), details | further.get(metric, {}))
            for metric, value in shares.items()
        ]

    def _logits(self, model: nn.Module, seen: list[str], tested: int) -> tuple[list[Tensor], set[str]]:
        """Logits of every seen task on one task's test images, and whose an earlier task's measurement left."""
        method, test = self.run.experiment.method, self.run.labelled[tested].test
        theta = {task: tensors_digest(method.theta(model, task)) for task in (seen if method.chained else seen[:1])}
        digests = {
            task: f"{theta.get(task, theta[seen[0]])} {tensors_digest(task_state(model, task))} {len(test)}"
            for task in seen
        }
        folder = self.run.folder.path / "logits" / self.run.tasks[tested]
        files, known, carried = {task: folder / f"{task}.safetensors" for task in seen}, {}, set()
        for task in seen:
            if files[task].exists():
                tensors, facts = read_tensors(files[task])
                if facts.get("weights") == digests[task]:
                    known[task] = tensors["logits"]
                    if facts.get("after") != seen[-1]:  # else this measurement was begun before and cut short
                        carried.add(task)
        missing = [task for task in seen if task not in known]
        if missing:
            pixels = self.run.experiment.pixels

            def batches() -> Iterator[Tensor]:
                for chunk in chunks(len(test)):
                    yield pixels(test.fetch(chunk)[0].to(self.device))

            for task, logits in zip(missing, logits_by_task(model, missing, batches), strict=True):
                known[task] = logits.float().cpu()
                write_tensors(files[task], {"logits": known[task]}, {"weights": digests[task], "after": seen[-1]})
        return [known[task] for task in seen], carried

    def _growth(self, model: nn.Module, through: int) -> Score:
        run, size = self.run, self.run.experiment.network.size
        counts = growth(model, (3, size, size), run.tasks[through])
        details = {key: value for key, value in dataclasses.asdict(counts).items() if key != "layers"}
        details["bytes_shared"] = details.pop("bytes_base")
        details["bytes_task"] = run.folder.task_file(through, run.tasks[through]).stat().st_size
        return self._line(through, through, "growth", counts.parameter_growth, 0, details)

    def _seconds(self, through: int, record: dict[str, float]) -> Score:
        figures = {key: value for key, value in record.items() if key not in ("seconds", "steps")}
        return self._line(through, through, "seconds", record["seconds"], int(record["steps"]), figures)

    def _line(self, through: int, tested: int, metric: str, value: float, n: int, details: dict) -> Score:
        run, experiment = self.run, self.run.experiment
        head = (run.folder.path.name, experiment.method.name, experiment.seed)
        return Score(*head, run.tasks[through], run.tasks[tested], metric, value, n, details)
