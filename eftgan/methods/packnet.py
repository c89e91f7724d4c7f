"""PackNet (Mallya and Lazebnik, CVPR 2018): tasks share out one network, weight by weight."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, TaskBank, named_banks, task_names
from eftgan.adapters.layers import Layer
from eftgan.adapters.transforms import GivenMask
from eftgan.config import Share
from eftgan.errors import UserError
from eftgan.methods.exchange import Moment, Networks, Probe
from eftgan.methods.owned_entries import OwnsEntries


@dataclass
class PackNet(OwnsEntries):
    """Task t computes with W * [1 <= o <= t], o being the number of the task that owns a weight, 0: nobody.

    A task trains every free weight beside those of earlier tasks, which it reads and leaves alone. Towards its end, in
    every layer, the smallest of the weights that it trained are freed for later tasks; the others go on training and
    are its own. Biases, normalisation and head are per task.
    """

    title: ClassVar[str] = "PackNet"

    name: Literal["packnet"] = "packnet"
    prune: Annotated[
        float | list[float],
        Doc("share of its free weights that a task leaves to later ones; a list: task by task, its last goes on"),
    ] = 0.6
    retrain: Annotated[Share, Doc("share of a task's steps that come after pruning, to make up for it")] = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = self._shares
        if not shares or not all(0 <= share < 1 for share in shares):
            raise UserError(f"method.prune: a share from 0 to below 1, or a list of them, not {self.prune}")
        self._free = 1.0  # share of the weights that no task owns

    @property
    def own_first_task(self) -> dict[str, str]:
        return {**super().own_first_task, "prune": str(self._pruned(0)), "retrain": str(self.retrain)}

    @property
    def _shares(self) -> list[float]:
        return self.prune if isinstance(self.prune, list) else [self.prune]

    def _pruned(self, task: int) -> float:
        return self._shares[min(task, len(self._shares) - 1)]

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, kind="mask", options={"rule": "given"}) if self._adapts(role) else config

    def covered(self, network: nn.Module) -> set[str]:
        """Masked weights, and biases, to which every task adds its own."""
        return {f"{name}.layer.{key}" for name, _ in _masked(network) for key in ("weight", "bias")}

    def owned(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        return {f"{name}.layer.weight": mask_of(bank, task).seen() for name, bank in _masked(network)}

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        for role, network in self._isolated(networks):
            if (names := task_names(network)) and _all_owned(self.owned(network, names[-1])):
                raise UserError(
                    f"task {task}: no weight of the {role} is free, because {names[-1]} left none; raise method.prune "
                    "and train again, or end the sequence there"
                )
        super().grow(networks, task, init=init, head_size=head_size)
        for _, network in self._isolated(networks):
            for _, bank in _masked(network):
                mask_of(bank, task).begin()

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        self._note_free(networks, task)
        return super().trainable(networks, task)

    def begin_step(self, role: str, networks: Networks, moment: Moment) -> None:
        if self._adapts(role) and moment.share >= 1 - self.retrain:
            self._prune({role: networks[role]}, task_names(networks[role])[-1])

    @torch.no_grad()
    def _prune(self, networks: Networks, task: str) -> None:
        """Once: a layer with a mask has been pruned in this task, by this run or before it was resumed."""
        for network in networks.values():
            share, before = self._pruned(task_names(network).index(task)), self.owned_before(network, task)
            for name, bank in _masked(network):
                mask, weight = mask_of(bank, task), cast(Layer, bank.layer).weight
                if mask.mask() is None:
                    earlier = before.get(f"{name}.layer.weight")
                    mask.take(~smallest(weight, torch.ones_like(weight) > 0 if earlier is None else ~earlier, share))
        self._note_free(networks, task)

    def _note_free(self, networks: Networks, task: str) -> None:
        masks = [own for _, network in self._isolated(networks) for own in self.owned(network, task).values()]
        self._free = 1 - sum(int(own.sum()) for own in masks) / sum(own.numel() for own in masks)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        """With `retrain: 0` the task is pruned only now."""
        self._prune(dict(self._isolated(networks)), task)
        super().end_task(networks, task, probe)

    def figures(self) -> dict[str, float]:
        return {"free-weights": self._free}


def _masked(network: nn.Module) -> Iterator[tuple[str, TaskBank]]:
    return ((name, bank) for name, bank in named_banks(network) if bank.part == "transforms")


def mask_of(bank: TaskBank, task: str) -> GivenMask:
    """A task's mask at one layer."""
    mask = bank.transform(bank.registry.row(task))
    assert isinstance(mask, GivenMask)
    return mask


def _all_owned(owned: dict[str, Tensor]) -> bool:
    return all(bool(own.all()) for own in owned.values())


def smallest(weight: Tensor, free: Tensor, share: float) -> Tensor:
    """True at the given share of the free entries, those of the smallest size; of equal ones the first."""
    places = free.reshape(-1).nonzero().squeeze(1)
    order = weight.detach().reshape(-1)[places].abs().argsort(stable=True)
    found = torch.zeros_like(free).reshape(-1)
    found[places[order[: round(share * len(places))]]] = True
    return found.view(free.shape)
