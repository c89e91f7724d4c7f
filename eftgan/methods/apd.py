"""Additive parameter decomposition (Yoon et al., ICLR 2020)."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import Doc

from eftgan.adapters import PARTS, AdapterConfig, named_banks, registry_of, task_names, train_only
from eftgan.adapters.bank import Part
from eftgan.adapters.layers import Layer
from eftgan.adapters.transforms.decomposed import Decomposed
from eftgan.config import Count, NonNegative
from eftgan.methods.base import Method
from eftgan.methods.consolidation import consolidate_network
from eftgan.methods.exchange import Batch, Group, Networks, Probe
from eftgan.names import CLASSIFIER

SMALL = "small"  # marks entries of tau in a state; targets have no mark


@dataclass
class Apd(Method):
    """APD: theta_t = sigma * sigmoid(v_t) + tau_t; sigma goes on training, and earlier tau_i make up for it.

    L_t + l1 sum_{i<=t} |tau_i|_1 + l2/2 sum_{i<t} |theta_i* - (sigma * sigmoid(v_i) + tau_i)|^2, theta_i* being what
    task i computed with when task t began. Earlier tasks are held by the last term, not kept to the bit.

    Entries of tau up to l1 are left out of what is measured and written. Training goes on with them: dropped for good
    after every task, they would let sigma drift away from an earlier task by as much each time.
    """

    title: ClassVar[str] = "APD"
    only_for: ClassVar[str | None] = "classifier"
    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)
    own_parts_change: ClassVar[bool] = True

    name: Literal["apd"] = "apd"
    l1: Annotated[NonNegative, Doc("weight of |tau|_1; entries up to this size are left out of finished tasks")] = 4e-4
    l2: Annotated[NonNegative, Doc("how strongly the weights of earlier tasks are held")] = 100.0
    start: Annotated[
        Literal["neutral", "authors"],
        Doc("a new task's tau: neutral, half of sigma, so that theta_t is sigma; authors: sigma, theta_t is 1.5 sigma"),
    ] = "neutral"
    consolidate_every: Annotated[
        int, Field(ge=0), Doc("after so many tasks, and again: find what groups of tasks have in common; 0: never")
    ] = 0
    groups_each: Annotated[Count, Doc("groups of tasks for every `consolidate_every` tasks")] = 2
    spread: Annotated[NonNegative, Doc("entries of a group's tasks that differ by no more become one")] = 0.01

    def __post_init__(self) -> None:
        self.targets: dict[str, dict[str, Tensor]] = {}  # theta_i*: by task, then by bank; while a task trains
        self.left_out: dict[str, dict[str, Tensor]] = {}  # small entries of tau_i, in the same way; between two tasks
        self._own: list[Decomposed] = []  # of all tasks, while one trains
        self._held: set[nn.Parameter] = set()  # what trains beside the task's own: sigma and earlier tau_i

    @property
    def init(self) -> str:
        return "identity" if self.start == "neutral" else "random"

    @property
    def first_init(self) -> str:
        return self.init

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"adapters": self.name, "start": self.start, "l1": str(self.l1)}

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, kind="apd", options={})

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        network = networks[CLASSIFIER]
        self._put_back(network)
        with torch.no_grad():
            self.targets = {
                earlier: {name: own.weight(sigma) for name, sigma, own in decomposed(network, earlier)}
                for earlier in task_names(network)
            }
        super().grow(networks, task, init=init, head_size=head_size)

    @torch.no_grad()
    def _put_back(self, network: nn.Module) -> None:
        """The small entries that training goes on with."""
        for earlier, left_out in self.left_out.items():
            for name, _, own in decomposed(network, earlier):
                own.tau.add_(left_out[name].to(own.tau.device))
        self.left_out = {}

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        """What the task owns, sigma, and the own parts of all earlier tasks; masks and biases of these stay."""
        network = networks[CLASSIFIER]
        device = next(network.parameters()).device
        for targets in self.targets.values():
            targets.update({name: target.to(device) for name, target in targets.items()})
        own = train_only(network, task)
        super().trainable(networks, task)
        for _, bank in named_banks(network):
            if bank.part == "transforms" and isinstance(bank.layer.bias, nn.Parameter):
                bank.layer.bias.requires_grad_(False)  # every task has its own in its place
        for earlier in self.targets:
            for _, _, each in decomposed(network, earlier):
                each.tau.requires_grad_(True)
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._held = set(parameters) - set(own)
        self._own = [each for name in task_names(network) for _, _, each in decomposed(network, name)]
        return {CLASSIFIER: parameters}

    def groups(self, role: str, parameters: list[nn.Parameter]) -> list[Group]:
        """Weight decay would move what the last term holds: sigma and earlier tau_i, from the second task on."""
        if not self.targets:
            return [Group(parameters)]
        own = [parameter for parameter in parameters if parameter not in self._held]
        return [Group(own), Group([p for p in parameters if p in self._held], decay=0.0)]

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        network = networks[CLASSIFIER]
        earlier = [
            hold(sigma, each, targets[name], self.l1, self.l2)
            for task, targets in self.targets.items()
            for name, sigma, each in decomposed(network, task)
        ]
        newest = [
            self.l1 * each.tau.abs().sum()
            for task in task_names(network)
            if task not in self.targets
            for _, _, each in decomposed(network, task)
        ]
        return torch.stack(earlier + newest).sum()

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        network = networks[CLASSIFIER]
        self.left_out = {
            name: {bank: own.drop_below(self.l1) for bank, _, own in decomposed(network, name)}
            for name in task_names(network)
        }
        done = len(task_names(network))
        if self.consolidate_every and done % self.consolidate_every == 0:
            consolidate_network(network, self.groups_each * done // self.consolidate_every, self.spread)
        self.targets, self._own = {}, []

    def as_trained(self, networks: Networks, state: Mapping[str, Tensor]) -> None:
        self.load_state_dict(state, networks)
        self._put_back(networks[CLASSIFIER])

    def figures(self) -> dict[str, float]:
        """Entries of all tau that count, over those of a whole network."""
        counted = sum(int((each.tau.abs() > self.l1).sum()) for each in self._own)
        tasks = 1 + len(self.targets)
        return {"own-weights": counted * tasks / sum(each.tau.numel() for each in self._own)} if self._own else {}

    def state_dict(self) -> dict[str, Tensor]:
        targets = {f"{task}/{bank}": t for task, by_bank in self.targets.items() for bank, t in by_bank.items()}
        small = {f"{task}/{bank}/{SMALL}": t for task, by_bank in self.left_out.items() for bank, t in by_bank.items()}
        return targets | small

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.targets, self.left_out = {}, {}
        for key, tensor in state.items():
            task, bank, *small = key.split("/")
            kept = self.left_out if small else self.targets
            kept.setdefault(task, {})[bank] = tensor.clone()


class Hold(torch.autograd.Function):
    """l1 |tau|_1 + l2/2 |sigma * mask + tau - target|^2 of an earlier task, whose mask stays.

    These terms are most of a step's time after a few tasks, and bound by memory. With the gradients written out, each
    tensor is read and written half as often as by a product, sums and a square one after the other.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, sigma: Tensor, tau: Tensor, mask: Tensor, target: Tensor, l1: float, l2: float
    ) -> Tensor:
        moved = torch.addcmul(tau, sigma, mask).sub_(target)
        ctx.save_for_backward(moved, tau, mask)
        ctx.weights = l1, l2
        return l1 * torch.linalg.vector_norm(tau, 1) + l2 / 2 * torch.linalg.vector_norm(moved).square()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        moved, tau, mask = ctx.saved_tensors
        l1, l2 = ctx.weights
        of_sigma = moved * (l2 * gradient * mask)
        of_tau = torch.sign(tau).mul_(l1 * gradient).addcmul_(moved, l2 * gradient)
        return of_sigma, of_tau, None, None, None, None


def hold(sigma: Tensor, own: Decomposed, target: Tensor, l1: float, l2: float) -> Tensor:
    """What keeps an earlier task's part sparse, and its weight where it was."""
    alone = target if own.common is None else target - own.common
    return cast(Tensor, Hold.apply(sigma, own.tau, own.mask(sigma), alone, l1, l2))


def decomposed(network: nn.Module, task: str) -> Iterator[tuple[str, Tensor, Decomposed]]:
    """By the name of its bank: the shared weight, and what a task makes of it."""
    row = registry_of(network).row(task)
    for name, bank in named_banks(network):
        if bank.part == "transforms":
            own = bank.transform(row)
            assert isinstance(own, Decomposed)
            yield name, cast(Layer, bank.layer).weight, own
