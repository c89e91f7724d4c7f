"""EWC with nearest class means and semantic drift compensation (Yu et al., CVPR 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.config import Positive
from eftgan.methods.ewc import Ewc
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.heads import features_of, head_of
from eftgan.methods.predecessor import Predecessor
from eftgan.names import CLASSIFIER

MEANS, TEACHER = "means/", "teacher/"  # of keys in a state


def drift(old: Tensor, new: Tensor, means: Tensor, widths: Tensor) -> Tensor:
    """How far the means (C, F) of earlier classes have moved, eqs. 10 and 11.

    The way from `old` to `new` features (N, F) of the same images, weighted by how near the old ones lie to a mean:
    exp(-d^2 / (2 width^2)), as a softmax, so that far means have weights too. widths: one (C,) per mean.
    """
    squared = torch.cdist(means, old).square()  # (C, N)
    return (-squared / (2 * widths[:, None].square())).softmax(1) @ (new - old)


def write_means(head: nn.Module, means: Tensor) -> None:
    """The nearest mean as a linear layer: 2 mu f - |mu|^2 is |f|^2, the same for all classes, less the distance."""
    head.load_state_dict({"weight": 2 * means, "bias": -means.square().sum(1)})


@dataclass
class EwcSdc(Ewc):
    """EWC holds the features; images are classified by the nearest class mean, and means follow the features' drift.

    After each task the means of its classes are taken, and those of earlier classes are moved by the drift that the
    task's own images show near them. Heads are these means, so all tasks together answer by the nearest of all.
    """

    title: ClassVar[str] = "EWC + SDC"
    only_for: ClassVar[str | None] = "classifier"
    rewrites: ClassVar[bool] = True  # heads; at class means the gradients, and so the Fisher, are others

    name: Literal["ewc-sdc"] = "ewc-sdc"  # type: ignore[assignment]
    sigma: Annotated[
        Positive, Doc("how near images must lie to a class mean to move it, as a share of the median distance")
    ] = 0.3
    compensate: Annotated[bool, Doc("false: means stay where their task put them")] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.teacher = Predecessor()  # the network as the task found it
        self.means: dict[str, Tensor] = {}  # by task: (classes, features)

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        if len(task_names(networks[CLASSIFIER])) > 1:
            self.teacher.take(networks[CLASSIFIER])

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        device = next(networks[CLASSIFIER].parameters()).device
        self.teacher.to(device)
        self.means = {each: means.to(device) for each, means in self.means.items()}
        return super().trainable(networks, task)

    @torch.no_grad()
    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        network = networks[CLASSIFIER]
        with torch.enable_grad():
            super().end_task(networks, task, probe)
        seen = [
            (features_of(network, x), features_of(self.teacher.network, x) if self.teacher else None, labels)
            for x, labels in probe.labelled(CLASSIFIER)
        ]
        new, labels = torch.cat([each[0] for each in seen]), torch.cat([each[2] for each in seen])
        if self.teacher and self.compensate:
            old = torch.cat([before for _, before, _ in seen if before is not None])
            for means in self.means.values():
                widths = self.sigma * torch.cdist(means, old).median(1).values
                means += drift(old, new, means, widths)
        classes = head_of(network, task).weight.shape[0]
        self.means[task] = torch.stack([new[labels == label].mean(0) for label in range(classes)])
        for each, means in self.means.items():
            write_means(head_of(network, each), means)
        self.teacher.drop()

    def state_dict(self) -> dict[str, Tensor]:
        own = {f"{MEANS}{task}": means for task, means in self.means.items()}
        return super().state_dict() | own | {f"{TEACHER}{key}": t for key, t in self.teacher.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.means = {key.removeprefix(MEANS): t.clone() for key, t in state.items() if key.startswith(MEANS)}
        teacher = {key.removeprefix(TEACHER): t for key, t in state.items() if key.startswith(TEACHER)}
        self.teacher.load(teacher, networks[CLASSIFIER])
        rest = {key: tensor for key, tensor in state.items() if not key.startswith((MEANS, TEACHER))}
        super().load_state_dict(rest, networks)
