"""What EWC, SI, MAS, RWalk, L2-transfer and IMM share: a quadratic pull of weights towards where a task left them.

It holds the parameters that all tasks have in common; a subclass is only its idea of their importance. Heads are each
task's own and stay free; BatchNorm's affine weights are parameters like others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.config import NonNegative
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, Networks
from eftgan.methods.parameters import parameters_in_common
from eftgan.names import CLASSIFIER

Tensors = dict[str, Tensor]  # by the parameter's name


@dataclass
class QuadraticPenalty(Method):
    """strength * factor * sum_k importance_k (theta_k - anchor_k)^2, for each network of its own."""

    factor: ClassVar[float] = 1.0
    slots: ClassVar[tuple[str, ...]] = ("importance", "anchor")  # what is remembered per network

    strength: Annotated[NonNegative, Doc("how strongly earlier tasks are protected")] = 1.0

    def __post_init__(self) -> None:
        self.memory: dict[str, dict[str, Tensors]] = {slot: {} for slot in self.slots}  # slot -> role -> tensors

    def protected(self, role: str, networks: Networks) -> dict[str, nn.Parameter]:
        """The parameters that go on training in every task."""
        owned = set(self.owned_by_tasks(role))
        if role == CLASSIFIER:
            owned.add("heads")
        return parameters_in_common(networks[role], owned)

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        parameters = super().trainable(networks, task)
        for by_role in self.memory.values():  # to where the networks are now
            for role, tensors in by_role.items():
                device = next(networks[role].parameters()).device
                by_role[role] = {name: tensor.to(device) for name, tensor in tensors.items()}
        return parameters

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        importance, anchor = self.memory["importance"].get(role), self.memory["anchor"].get(role)
        if not importance or not anchor:
            return 0.0
        parameters = self.protected(role, networks)
        terms = [(importance[name] * (p - anchor[name]) ** 2).sum() for name, p in parameters.items()]
        return self.strength * self.factor * torch.stack(terms).sum()

    def penalty_gradient(self, role: str, at: Tensors) -> Tensors:
        """The derivative of the penalty at given parameters."""
        importance, anchor = self.memory["importance"].get(role), self.memory["anchor"].get(role)
        if not importance or not anchor:
            return {name: torch.zeros_like(tensor) for name, tensor in at.items()}
        scale = 2 * self.strength * self.factor
        return {name: scale * importance[name] * (tensor - anchor[name]) for name, tensor in at.items()}

    def state_dict(self) -> Tensors:
        return {
            f"{slot}/{role}/{name}": tensor
            for slot, by_role in self.memory.items()
            for role, tensors in by_role.items()
            for name, tensor in tensors.items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.memory = {slot: {} for slot in self.slots}
        for key, tensor in state.items():
            slot, role, name = key.split("/", 2)
            self.memory[slot].setdefault(role, {})[name] = tensor.clone()


def values(parameters: Mapping[str, nn.Parameter]) -> Tensors:
    """A copy of where the parameters are."""
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


def zeros(parameters: Mapping[str, nn.Parameter]) -> Tensors:
    """A zero for every parameter."""
    return {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}


def moved_mean(mean: Tensor, new: Tensor, weight: Tensor, total: Tensor) -> Tensor:
    """A weighted mean with one value more; `total` holds its weight already. The new value where no weight is."""
    share = torch.where(total > 0, weight / total.clamp_min(torch.finfo(total.dtype).tiny), 1.0)
    return torch.lerp(mean, new, share)


def average_gradients(
    scalars: Iterable[Tensor], parameters: Mapping[str, nn.Parameter], of: Callable[[Tensor], Tensor], samples: int
) -> Tensors:
    """Mean over the first `samples` samples of `of(gradient)`, each sample's gradient taken by itself."""
    total, count = zeros(parameters), 0
    for scalar in islice(scalars, samples):
        gradients = torch.autograd.grad(scalar, list(parameters.values()), allow_unused=True)
        for tensor, gradient in zip(total.values(), gradients, strict=True):
            if gradient is not None:
                tensor += of(gradient)
        count += 1
    return {name: tensor / max(1, count) for name, tensor in total.items()}


@dataclass
class PathPenalty(QuadraticPenalty):
    """Follows training step by step: the gradient of the task's own loss, and the way that the optimizer took.

    Where the network ends with averaged weights (a generator does), the anchor is those; the path, and where it ends,
    are of the weights that the gradients were taken at.
    """

    @property
    def follows_training(self) -> bool:
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reached: dict[str, Tensors] = {}  # role -> where the optimizer has brought the parameters

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        parameters = super().trainable(networks, task)
        self._note_reached(networks)
        return parameters

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        super().load_state_dict(state, networks)
        self._note_reached(networks)

    def _note_reached(self, networks: Networks) -> None:
        self.reached = {role: values(self.protected(role, networks)) for role in networks}

    def after_step(self, role: str, networks: Networks) -> None:
        parameters = self.protected(role, networks)
        pulls = self.penalty_gradient(role, self.reached[role])
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                gradient = parameter.grad - pulls[name]
                self.follow(role, name, gradient, parameter.detach() - self.reached[role][name])
        self.reached[role] = values(parameters)

    def follow(self, role: str, name: str, gradient: Tensor, moved: Tensor) -> None:
        """One step of one parameter: the gradient before it, and how far it went."""
        raise NotImplementedError
