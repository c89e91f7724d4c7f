"""Incremental moment matching, mode-IMM (Lee et al. 2017)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.adapters.modes import evaluating
from eftgan.config import Count, NonNegative, Positive
from eftgan.errors import UserError
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.l2t import PullToLast
from eftgan.methods.quadratic import Tensors, average_gradients, moved_mean, values
from eftgan.names import CLASSIFIER


@dataclass
class Imm(PullToLast):
    """Mode-IMM: theta* = sum_k alpha_k F_k theta_k / sum_k alpha_k F_k, the mode of the product of tasks' posteriors.

    Every task trains weights theta_t of its own, near those of the task before by L2-transfer; F_t is the diagonal
    Fisher at their end. The network that is evaluated and kept is theta*; the next task goes on from theta_t. Where no
    Fisher says anything, theta* is theta_t. BatchNorm's running statistics are averaged with the alphas. Heads are
    each task's own and never merged.
    """

    title: ClassVar[str] = "IMM-mode"
    only_for: ClassVar[str | None] = "classifier"
    # anchor and statistics: of theta_t, unmerged; mode and mean: of theta*
    slots: ClassVar[tuple[str, ...]] = ("importance", "anchor", "statistics", "precision", "mode", "mean")

    name: Literal["imm"] = "imm"
    strength: Annotated[NonNegative, Doc("lambda of L2-transfer; 0.01 in the code of HAT, which calls 1 the best")] = (
        0.5
    )
    labels: Annotated[
        Literal["own", "sampled"], Doc("of the Fisher's images: their own, or drawn from the network's answers")
    ] = "own"
    samples: Annotated[Count, Doc("images whose gradients make the Fisher")] = 256
    alphas: Annotated[
        tuple[Positive, ...], Doc("weight of every task in the merge, up to a common factor; []: all alike")
    ] = ()

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        network = networks[CLASSIFIER]
        if self.alphas and len(task_names(network)) >= len(self.alphas):
            raise UserError(f"method.alphas: names the weights of {len(self.alphas)} tasks; task {task!r} is one more")
        _copy_to(self.memory["anchor"].get(CLASSIFIER, {}), dict(network.named_parameters()))
        _copy_to(self.memory["statistics"].get(CLASSIFIER, {}), _statistics(network))
        super().grow(networks, task, init=init, head_size=head_size)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        network, parameters = networks[CLASSIFIER], self.protected(CLASSIFIER, networks)
        fisher = average_gradients(self._losses(network, probe), parameters, Tensor.square, self.samples)
        super().end_task(networks, task, probe)
        alphas = self.alphas[: len(task_names(network))] or [1.0] * len(task_names(network))
        self._merge(values(parameters), {name: alphas[-1] * tensor for name, tensor in fisher.items()})
        self._average({name: tensor.clone() for name, tensor in _statistics(network).items()}, alphas[-1] / sum(alphas))
        _copy_to(self.memory["mode"][CLASSIFIER], parameters)
        _copy_to(self.memory["mean"][CLASSIFIER], _statistics(network))

    def _merge(self, now: Tensors, weight: Tensors) -> None:
        """Move the mode towards the finished task's weights by its share of the precision, entry by entry."""
        precision, mode = self.memory["precision"], self.memory["mode"]
        earlier = precision.get(CLASSIFIER)
        precision[CLASSIFIER] = weight if earlier is None else {name: earlier[name] + weight[name] for name in weight}
        mode[CLASSIFIER] = {
            name: now[name] if earlier is None else moved_mean(mode[CLASSIFIER][name], now[name], weight[name], total)
            for name, total in precision[CLASSIFIER].items()
        }

    def _average(self, now: Tensors, share: float) -> None:
        """Move the mean statistics towards those of the finished task."""
        earlier = self.memory["mean"].get(CLASSIFIER, now)
        self.memory["statistics"][CLASSIFIER] = now
        self.memory["mean"][CLASSIFIER] = {name: torch.lerp(earlier[name], now[name], share) for name in now}

    def _losses(self, network: nn.Module, probe: Probe) -> Iterable[Tensor]:
        if self.labels == "own":
            return probe.losses(CLASSIFIER)
        # Seeded by the task's number alone: the same labels however often training stopped.
        generator = torch.Generator().manual_seed(len(task_names(network)))
        return sampled_losses(network, probe.inputs(CLASSIFIER), generator)


def sampled_losses(network: nn.Module, batches: Iterable[Tensor], generator: torch.Generator) -> Iterator[Tensor]:
    """Cross-entropy of every image under a label drawn from the network's own probabilities."""
    with evaluating(network):
        for batch in batches:
            for image in batch.split(1):
                logits = network(image)
                label = torch.multinomial(logits.detach().softmax(1).cpu(), 1, generator=generator)[:, 0]
                yield F.cross_entropy(logits, label.to(logits.device))


def _statistics(network: nn.Module) -> Tensors:
    """Running statistics: buffers that are no counters."""
    return {name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point()}


@torch.no_grad()
def _copy_to(source: Tensors, target: Tensors | dict[str, nn.Parameter]) -> None:
    for name, tensor in source.items():
        target[name].copy_(tensor)
