"""Deep model consolidation (Zhang et al., WACV 2020)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.config import Share
from eftgan.errors import UserError
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, MethodStage, Networks, Probe
from eftgan.methods.heads import features_of, head_of, train_heads
from eftgan.methods.predecessor import Predecessor
from eftgan.names import CLASSIFIER

SPECIALIST, CONSOLIDATE = "specialist", "consolidate"  # the stages of a later task
DRAWN, OLD, NEW = "drawn", "old/", "new/"  # keys in a state


def centred(logits: Tensor) -> Tensor:
    """Logits (B, C) of one teacher, less their mean over its classes."""
    return logits - logits.mean(1, keepdim=True)


def double_distillation(student: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """The mean squared distance of the student's logits (B, C) from those of both teachers, each centred."""
    return (student - torch.cat([centred(old), centred(new)], dim=1)).square().mean()


@dataclass
class Dmc(Method):
    """DMC: a fresh specialist learns the new classes alone; a fresh student learns the logits of both teachers.

    The teachers, the network so far and the specialist, are asked about unlabelled auxiliary images (`auxiliary` in the
    config), so that neither the old nor the new classes have an advantage. Nothing of a task is kept to the bit.
    """

    title: ClassVar[str] = "DMC"
    only_for: ClassVar[str | None] = "classifier"
    auxiliary: ClassVar[bool] = True

    name: Literal["dmc"] = "dmc"
    consolidation: Annotated[Share, Doc("share of a later task's steps that the student gets")] = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.consolidation < 1:
            raise UserError(f"method.consolidation: a share between 0 and 1, got {self.consolidation}")
        self.old, self.new = Predecessor(), Predecessor()  # the network that the task found, and the specialist
        self.drawn = torch.zeros((), dtype=torch.int64)  # what fresh weights are drawn from
        self._heads: list[nn.Module] = []  # of all tasks, while one trains

    def stages(self, first: bool) -> list[MethodStage]:
        if first:
            return super().stages(first)
        return [
            MethodStage(SPECIALIST, 1 - self.consolidation, whole_schedule=True),
            MethodStage(CONSOLIDATE, self.consolidation, auxiliary=True, whole_schedule=True),
        ]

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        network = networks[CLASSIFIER]
        if task_names(network):
            self.old.take(network)
        super().grow(networks, task, init=init, head_size=head_size)
        self.drawn = torch.randint(2**31, ())

    def begin_stage(self, networks: Networks, task: str, stage: str) -> None:
        network = networks[CLASSIFIER]
        if stage == CONSOLIDATE:
            self.new.take(network)
        if stage in (SPECIALIST, CONSOLIDATE):
            with torch.random.fork_rng():
                torch.manual_seed(int(self.drawn) + (stage == CONSOLIDATE))
                reset(network)

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        """The student, unlike the specialist, trains the heads of all tasks."""
        network, parameters = networks[CLASSIFIER], super().trainable(networks, task)
        for teacher in (self.old, self.new):
            teacher.to(next(network.parameters()).device)
        self._heads = [head_of(network, each) for each in task_names(network)]
        return {CLASSIFIER: train_heads(network, parameters[CLASSIFIER])} if self.new else parameters

    def objective(self, stage: str, batch: Batch, usual: Callable[[], Tensor]) -> Tensor:
        if stage != CONSOLIDATE:
            return usual()
        features = batch.features
        assert features is not None  # a classifier's batches have them
        student = torch.cat([head(features) for head in self._heads], dim=1)
        old, new = (joined_logits(teacher.network, batch.inputs) for teacher in (self.old, self.new))
        return double_distillation(student, old, new[:, old.shape[1] :])

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        self.old.drop()
        self.new.drop()

    def state_dict(self) -> dict[str, Tensor]:
        teachers = ((OLD, self.old), (NEW, self.new))
        kept = {f"{prefix}{key}": t for prefix, teacher in teachers for key, t in teacher.state_dict().items()}
        return {DRAWN: self.drawn, **kept}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.drawn = state[DRAWN].clone()
        for prefix, teacher in ((OLD, self.old), (NEW, self.new)):
            own = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
            teacher.load(own, networks[CLASSIFIER])


@torch.no_grad()
def joined_logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """Logits (B, C) over the classes of all tasks that a network knows."""
    features = features_of(network, inputs)
    return torch.cat([head_of(network, task)(features) for task in task_names(network)], dim=1)


def reset(network: nn.Module) -> None:
    """Fresh weights and statistics everywhere, as PyTorch draws them."""
    for module in network.modules():
        if callable(draw := getattr(module, "reset_parameters", None)):
            draw()
