"""Which task does an image belong to? Every task answers, and the most certain one is believed."""

import torch
from torch import Tensor, nn

from eftgan.adapters import registry_of, using_task
from eftgan.methods.heads import evaluating, head_input, head_of


def shares_features(model: nn.Module, tasks: list[str]) -> bool:
    """Whether the tasks differ in nothing but their heads."""
    return len({_trunk(model, task) for task in tasks}) == 1


def _trunk(model: nn.Module, task: str) -> tuple[str, str]:
    row = registry_of(model).row(task)
    return row["transforms"], row["norms"]


@torch.no_grad()
def all_task_logits(model: nn.Module, tasks: list[str], x: Tensor) -> list[Tensor]:
    """Logits (B, classes of the task) of every task for the same images, in eval mode.

    Tasks that share all but their heads share one forward; each result is bit-identical to the task's own forward.
    """
    features: dict[tuple[str, str], Tensor] = {}
    with evaluating(model), head_input(model) as noted:
        for task in tasks:
            if _trunk(model, task) not in features:
                with using_task(model, task):
                    model(x)
                features[_trunk(model, task)] = noted.features
        return [head_of(model, task)(features[_trunk(model, task)]) for task in tasks]


def entropy(logits: Tensor) -> Tensor:
    """Entropy (B,) of the softmax."""
    logs = logits.log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def infer_tasks(logits: list[Tensor], joined: bool) -> Tensor:
    """Index (B,) of the task that each image is taken for.

    The one whose softmax has the least entropy; with `joined`, the one with the largest of all logits.
    """
    if joined:
        return torch.stack([each.amax(1) for each in logits]).argmax(0)
    return torch.stack([entropy(each) for each in logits]).argmin(0)


def infer_classes(logits: list[Tensor], tasks: Tensor) -> Tensor:
    """Index (B,) of the class within the given task of each image."""
    answers = torch.stack([each.argmax(1) for each in logits])  # (tasks, B)
    return answers.gather(0, tasks[None]).squeeze(0)
