"""Which task does an image belong to? Every task answers, and the most certain one is believed."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from eftgan.adapters import Together, inference_network, registry_of
from eftgan.adapters.bank import tasks_share_batches
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.merge import fast_layout
from eftgan.adapters.modes import evaluating
from eftgan.methods.heads import head_bank_name, head_of


def shares_features(model: nn.Module, tasks: list[str]) -> bool:
    """Whether the tasks differ in nothing but their heads."""
    return len({_trunk(model, task) for task in tasks}) == 1


def _trunk(model: nn.Module, task: str) -> tuple[str, str]:
    row = registry_of(model).row(task)
    return row["transforms"], row["norms"]


@torch.no_grad()
def logits_by_task(model: nn.Module, tasks: list[str], batches: Callable[[], Iterable[Tensor]]) -> list[Tensor]:
    """Logits (N, classes of the task) of every task for the same images; `batches` is called once per trunk.

    Each task answers as a network of its own, merged where that can be, so its logits are the same bits whoever is
    asked beside it.
    Tasks that share all but their heads share one trunk.
    """
    if not tasks_share_batches(model):  # a head may read more than the trunk's output
        alone = (fast_layout(inference_network(model, task)) for task in tasks)  # one layout, the same bits
        return [torch.cat([network(x) for x in batches()]) for network in alone]
    features: dict[tuple[str, str], Tensor] = {}
    for task in tasks:
        if _trunk(model, task) not in features:
            trunk = inference_network(model, task)
            replace_modules(trunk, {trunk.get_submodule(head_bank_name(model)): nn.Identity()})
            features[_trunk(model, task)] = torch.cat([trunk(x) for x in batches()])
    with evaluating(model):
        return [head_of(model, task)(features[_trunk(model, task)]) for task in tasks]


def logits_together(model: nn.Module, tasks: list[str], x: Tensor) -> list[Tensor]:
    """The same in one pass, up to rounding: the quick way to ask for a few images."""
    if shares_features(model, tasks) or not tasks_share_batches(model):
        return logits_by_task(model, tasks, lambda: [x])
    return Together(model, tasks)(x)


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


def certainties(logits: list[Tensor], joined: bool) -> Tensor:
    """How sure each task is (tasks, B), from 0 to 1; the largest is that of `infer_tasks`.

    exp(-entropy) of its softmax, which is 1 where all of it is on one class and 1/k where it is even over k; with
    `joined`, its best class's share of the softmax over the classes of all tasks.
    """
    if joined:
        shares = torch.cat(logits, 1).softmax(1).split([each.shape[1] for each in logits], dim=1)
        return torch.stack([each.amax(1) for each in shares])
    return torch.stack([(-entropy(each)).exp() for each in logits])


def infer_classes(logits: list[Tensor], tasks: Tensor) -> Tensor:
    """Index (B,) of the class within the given task of each image."""
    answers = torch.stack([each.argmax(1) for each in logits])  # (tasks, B)
    return answers.gather(0, tasks[None]).squeeze(0)
