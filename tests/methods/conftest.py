"""Three small tasks of labelled shapes, and a network that learns them in seconds."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig
from eftgan.classifier.experiment import ClassifierTraining
from eftgan.classifier.selection import Schedule, SeenImages
from eftgan.classifier.trainer import ClassifierTrainer
from eftgan.data.labelled import LabelledImages
from eftgan.data.pixels import Pixels
from eftgan.data.shapes import CLASSES, LabelledShapes
from eftgan.data.splits import LabelledTask, split_classes
from eftgan.evaluation.accuracy import TIL, accuracies
from eftgan.evaluation.task_inference import logits_by_task
from eftgan.methods import Method
from eftgan.names import CLASSIFIER
from eftgan.runfolder import RunFolder
from eftgan.training.launch import make_accelerator

SIZE, PIXELS = 16, Pixels()


def shapes_task(name: str, classes: list[int], per_class: int) -> LabelledTask:
    parts = []
    for train in (True, False):
        shapes = LabelledShapes(classes, per_class, SIZE, seed=0, train=train)
        parts.append(LabelledImages(shapes.images, shapes.targets, SIZE))
    return LabelledTask(name, [CLASSES[i] for i in classes], lambda: (parts[0], parts[1]))


@pytest.fixture(scope="session")
def three_tasks() -> list[LabelledTask]:
    """Four classes each, outlines and textures mixed."""
    shares = split_classes("shapes/3", 12, seed=1)
    return [shapes_task(f"shapes-{i + 1}", share, 100) for i, share in enumerate(shares)]


class Tiny(nn.Module):
    """Images (B, 3, 16, 16) -> logits; BatchNorm if asked."""

    def __init__(self, classes: int, norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for c_in, c_out in ((3, 16), (16, 32)):
            layers += [nn.Conv2d(c_in, c_out, 3, 2, 1), *([nn.BatchNorm2d(c_out)] if norm else []), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@dataclass
class Learned:
    """A network that went through the tasks, with its accuracies after each and the logits of every task then."""

    network: nn.Module
    method: Method
    matrix: dict[tuple[int, int], float]
    logits: list[dict[str, torch.Tensor]]
    trainer: ClassifierTrainer
    fresh: nn.Module  # the network before training, banks in


@pytest.fixture(scope="session")
def auxiliary() -> SeenImages:
    """Shapes of all classes in another drawing: unlabelled images for methods that need some."""
    shapes = LabelledShapes(list(range(12)), 40, SIZE, seed=9, train=True)
    return SeenImages([LabelledImages(shapes.images, shapes.targets, SIZE)], [12])


@pytest.fixture
def learn(tmp_path, three_tasks, auxiliary):
    """Train a method on the three tasks (or others) and measure after each."""

    def run(
        method: Method, tasks=None, *, norm=True, epochs=2.0, rate=0.05, milestones=None, decay=1e-4, out="run", seed=0,
        **options,
    ) -> Learned:  # fmt: skip
        tasks, options = tasks or three_tasks, {"augment": False, **options}
        torch.manual_seed(seed)
        network = Tiny(len(tasks[0].classes), norm)
        method.prepare({CLASSIFIER: network}, {CLASSIFIER: AdapterConfig(4, 4, heads=("head",))})
        fresh = copy.deepcopy(network)
        matrix, logits = {}, []

        def measure(after: int) -> None:
            names = [task.name for task in tasks[: after + 1]]
            seen = {}
            for on, task in enumerate(tasks[: after + 1]):
                images = PIXELS(task.test.images)
                answers = logits_by_task(network, names, lambda images=images: [images])
                matrix[after, on] = accuracies(
                    answers, on, task.test.targets, torch.zeros(len(images), dtype=torch.long)
                )[TIL]
                seen[task.name] = answers[on]
            logits.append(seen)

        schedule = Schedule(epochs, rate, milestones or [0.75 * epochs], weight_decay=decay)
        training = ClassifierTraining(batch=20, first=schedule, **options)
        folder = RunFolder(tmp_path / out)
        accelerator = make_accelerator(folder.path, mixed_precision=training.mixed_precision)
        trainer = ClassifierTrainer(
            accelerator=accelerator, networks={"classifier": network}, method=method,
            options=training, pixels=PIXELS, auxiliary=auxiliary if method.auxiliary else None, seed=seed,
            folder=folder, after_task=measure,
        )  # fmt: skip
        trainer.run(tasks)
        return Learned(network, method, matrix, logits, trainer, fresh)

    return run


class TwoLayers(nn.Module):
    """Inputs (B, 2) -> the layer under test -> a head: small enough to be computed by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2, bias=False)
        self.head = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@pytest.fixture
def two_layers() -> type[nn.Module]:
    return TwoLayers
