"""A task's classifier, or all of them, as a program without any of this package's classes."""

from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.adapters import inference_network, mergeable
from eftgan.adapters.bank import tasks_share_batches
from eftgan.adapters.by_number import ByNumber
from eftgan.classifier.run import ClassifierRun
from eftgan.data.pixels import Pixels
from eftgan.errors import UserError
from eftgan.export.program import EVERY_TASK, check_format, task_program
from eftgan.methods.rotation import averaged_logits, turned


class FromPixels(nn.Module):
    """uint8 pictures -> what a network says of them once they are normalised."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, pixels: Pixels, turns: int = 1) -> None:
        super().__init__()
        self.network, self.turns = network, turns
        self.register_buffer("mean", torch.tensor(pixels.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(pixels.std).view(3, 1, 1))

    def forward(self, images: Tensor, task: Tensor | None = None) -> Tensor:
        x = (images.to(torch.float32) / 255 - self.mean) / self.std
        number = () if task is None else (task,)
        return averaged_logits([self.network(turned(x, turn), *number) for turn in range(self.turns)])


def export_classifier(run: ClassifierRun, task: str, out: Path) -> list[str]:
    """Write NAME.pt2 or NAME.onnx; returns the lines that tell how to use it.

    task: a name, or all: the number of the task is an input then.
    """
    check_format(out)
    size, tasks = run.experiment.network.size, run.present if task == EVERY_TASK else [task]
    differ = len({len(run.classes[each]) for each in tasks}) > 1
    turns = run.experiment.method.outputs_per_class
    if differ and turns > 1:
        raise UserError(
            f"{run.folder.path}: tasks with rotation labels and different numbers of classes cannot be one program; "
            f"export them one by one: --task {tasks[0]}"
        )
    classifier = run.classifier(len(run.trained) - 1, tasks)
    if not tasks_share_batches(classifier) and not all(mergeable(classifier, each) for each in tasks):
        raise UserError(
            f"{run.folder.path}: a task of {run.experiment.method.name} reads more than the input of its layers, so it "
            "cannot be exported as one network; use it by eftgan classify, or by ClassifierRun(folder).classify(image)"
        )
    network = ByNumber(classifier, tasks) if task == EVERY_TASK else inference_network(classifier, task)
    images = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    program = task_program(
        FromPixels(network, run.experiment.pixels, turns),
        {"images": images},
        "logits",
        run.origin(tasks),
        numbered=task == EVERY_TASK,
    )
    program.write(out)
    wide = "; -inf beyond the classes of a task with fewer" if differ else ""
    return [
        f"{out}: uint8 pictures (B, 3, {size}, {size}) -> logits of {', '.join(tasks)}{wide}. Use it with:",
        *program.usage(out, {"images": f"torch.randint(256, (1, 3, {size}, {size}), dtype=torch.uint8)"}),
    ]
