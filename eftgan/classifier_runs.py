"""Run folders of classifier training: made task by task, scored, and read back."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.adapters import shared_state, task_state
from eftgan.classifier_experiment import ClassifierExperiment, build_network, open_classes
from eftgan.data.collection import WithoutLabels
from eftgan.data.sequences import data_record
from eftgan.data.splits import LabelledTask
from eftgan.errors import UserError
from eftgan.evaluation.accuracy import CIL, TIL, accuracies, accuracy_matrix, average_over_seen, chunks
from eftgan.evaluation.growth import growth
from eftgan.evaluation.nearest import nearest_earlier
from eftgan.evaluation.task_inference import infer_tasks, logits_by_task, logits_together, shares_features
from eftgan.experiment import SavedRun, start_folder, start_of
from eftgan.files import file_digest, write_json
from eftgan.methods.heads import CLASSIFIER
from eftgan.names import NEAREST
from eftgan.reports.write import write_report
from eftgan.runfolder import RunFolder
from eftgan.scores import Score, append_scores, read_scores
from eftgan.tensors import read_tensors, tensors_digest, write_tensors
from eftgan.training.checkpoint import read_shared, read_task
from eftgan.training.classifier import ClassifierTrainer, check_head
from eftgan.training.launch import make_accelerator


class ClassifierRun(SavedRun):
    """A run of classifier training."""

    kind, entry = ClassifierExperiment, "train_classifier.py"

    @property
    def classes(self) -> dict[str, list[str]]:
        """Names of the classes of every task, in the order of its head's outputs."""
        return self.folder.read_classes()

    @functools.cached_property
    def labelled(self) -> list[LabelledTask]:
        """The tasks with their images and class names."""
        return open_classes(self.experiment)

    def classifier(self, after: int) -> nn.Module:
        """The classifier as it was when task number `after` (from 0) was trained, in eval mode."""
        network = build_network(self.experiment, len(self.classes[self.tasks[0]]), pretrained=False)
        indices = [after]
        if self.folder.shared.exists():
            read_shared(self.folder, {CLASSIFIER: network})
            indices = range(after + 1)
        for index in indices:
            read_task(self.folder, index, self.tasks[index], CLASSIFIER, network)
        return network.eval()

    def classify(self, image: Tensor, task: str | None = None) -> tuple[str, list[tuple[str, float]]]:
        """The task of a uint8 (3, S, S) image (inferred if not given) and its classes by probability."""
        after = len(self.trained) - 1
        names = self.trained if task is None else [self.trained[self.index(task)]]
        network = self.classifier(after)
        logits = logits_together(network, names, self.experiment.pixels(image[None]))
        found = int(infer_tasks(logits, joined=shares_features(network, names)))
        shares = logits[found][0].softmax(0)
        ranked = sorted(zip(self.classes[names[found]], shares.tolist(), strict=True), key=lambda pair: -pair[1])
        return names[found], ranked

    def describe_network(self) -> str:
        return f"{self.experiment.network.name}, {self.experiment.network.size} pixels"

    def data_of(self, index: int) -> str:
        return ", ".join(self.classes.get(self.tasks[index], ["classes not known yet"]))

    def summary(self) -> str:
        """What came out, and what a person does next."""
        lines, scores, last = [], read_scores(self.folder.scores), len(self.trained) - 1
        for metric in (TIL, CIL):
            average = average_over_seen(accuracy_matrix(scores, self.tasks, metric), last)
            lines.append(f"  {metric}  {average:.1%} on average over the {last + 1} tasks")
        return "\n".join([
            f"\n{last + 1} tasks trained: {', '.join(self.trained)}",
            *lines,
            f"  report   {self.folder.report}",
            "next:",
            f"  eftgan classify {self.folder.path} --image photo.jpg",
            f"  eftgan report {self.folder.path} OTHER_RUN ...",
        ])  # fmt: skip


def note_classes(run: ClassifierRun, tasks: list[LabelledTask]) -> None:
    """Write down the tasks' classes; refuse data that has others than the run was started with."""
    before, now = run.classes, {task.name: task.classes for task in tasks}
    for name, classes in before.items():
        if now.get(name, classes) != classes:
            raise UserError(
                f"{run.folder.path}: task {name} has the classes {', '.join(classes)}, the data has "
                f"{', '.join(now[name])}; use the data that the run was started with"
            )
    write_json(run.folder.classes, before | now)


class ClassifierScorer:
    """Measures a run after a task; logits of unchanged weights are taken from the folder."""

    def __init__(self, run: ClassifierRun, device: torch.device | str = "cpu") -> None:
        self.run, self.device = run, device

    def score(self, through: int, record: dict[str, float]) -> None:
        """Append the lines of one task, unless they are there: accuracies on all seen tasks, growth, seconds.

        Lines of other weights than those of now, from a training before this one, do not count. A task whose test
        images are gone is left out. `record` is empty where the task's training was not seen.
        """
        name = self.run.tasks[through]
        weights = file_digest(self.run.folder.task_file(through, name))
        known = {(line.trained_through, line.details.get("weights")) for line in read_scores(self.run.folder.scores)}
        if (name, weights) in known:  # all lines of a task are written at once
            return
        model = self.run.classifier(through).to(self.device)
        for task in self.run.labelled[: through + 1]:
            check_head(model, task)
        there = [tested for tested in range(through + 1) if self._has_images(tested)]
        lines = [line for tested in there for line in self._accuracies(model, through, tested)]
        if record:
            lines.append(self._seconds(through, record))
        lines = [dataclasses.replace(line, details=line.details | {"weights": weights}) for line in lines]
        append_scores(self.run.folder.scores, [self._growth(model, through), *lines])

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
        theta, test = tensors_digest(shared_state(model)), self.run.labelled[tested].test
        digests = {task: f"{theta} {tensors_digest(task_state(model, task))} {len(test)}" for task in seen}
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


def train_classifier(experiment: ClassifierExperiment, command: str) -> ClassifierRun | None:
    """Train every task, going on where the folder stands; after each one measure and report.

    The main process gets the finished run back, the others nothing.
    """
    folder = RunFolder(Path(experiment.out))
    accelerator = make_accelerator(
        folder.path, mixed_precision=experiment.training.mixed_precision, log_with=experiment.log_with
    )
    tasks, start = open_classes(experiment), start_of(experiment)
    network = build_network(experiment, len(tasks[0].classes))
    known = folder.read_facts().get("nearest", {})
    wanted = (
        [name for name in experiment.task_names[1:] if name not in known] if experiment.method.init == NEAREST else []
    )
    images = {task.name: WithoutLabels(task.train) for task in tasks} if wanted else {}
    nearest = nearest_earlier(images, wanted, experiment.network.size)
    with folder.locked() if accelerator.is_main_process else contextlib.nullcontext():
        if accelerator.is_main_process:
            data = {source.name: data_record(source.data) for source in experiment.sources}
            start_folder(experiment, folder, CLASSIFIER, command, data, nearest)
            for task, found in nearest.items():
                print(f"task {task} starts from {found}")
            note_classes(ClassifierRun(folder.path), tasks)
        accelerator.wait_for_everyone()
        if experiment.log_with:
            accelerator.init_trackers(CLASSIFIER)
        run = ClassifierRun(folder.path)
        run.labelled = tasks

        def after_task(index: int) -> None:
            if accelerator.is_main_process:
                ClassifierScorer(run, accelerator.device).score(index, trainer.records.get(run.tasks[index], {}))
                write_report([folder.path], folder.report)
            accelerator.wait_for_everyone()

        trainer = ClassifierTrainer(
            accelerator=accelerator,
            networks={CLASSIFIER: network},
            method=experiment.method,
            options=experiment.training,
            pixels=experiment.pixels,
            starts={task: found["task"] for task, found in known.items()}
            | {task: found.task for task, found in nearest.items()},
            seed=experiment.seed,
            folder=folder,
            start=start,
            after_task=after_task,
        )
        trainer.run(tasks)
        accelerator.end_training()
    return run if accelerator.is_main_process else None
