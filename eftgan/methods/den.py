"""Dynamically expandable networks (Yoon et al., ICLR 2018)."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import PARTS, AdapterConfig, add_task, named_banks, task_names, train_only
from eftgan.adapters.bank import Part
from eftgan.adapters.chains import chain_of
from eftgan.adapters.growing import add_units, growing_banks, let_grow, units_of
from eftgan.adapters.units import NEW, all_pieces, arrange_units, own_blocks
from eftgan.config import NonNegative
from eftgan.methods.exchange import Batch, Group, MethodStage, Moment, Networks, Probe
from eftgan.methods.expansion import drifts, drop_dead_units, selected_units, shrink, shrink_rows
from eftgan.methods.heads import head_of
from eftgan.methods.l2t import PullToLast
from eftgan.methods.parameters import state_of_others
from eftgan.methods.quadratic import Tensors
from eftgan.methods.rcl import Units, check_some_units, check_units, each_of
from eftgan.names import CLASSIFIER

FIRST, SELECT, RETRAIN, EXPAND, SPLIT = STAGES = ("train", "select", "retrain", "expand", "split")
SHARES = {SELECT: 0.1, RETRAIN: 0.4, EXPAND: 0.25, SPLIT: 0.25}  # of a later task's steps
TAIL = 0.1  # share of the retraining's steps, its last, whose loss decides whether units are added
FACTS, SELECTED = "facts", "selected/"  # names in a state


@dataclass
class Den(PullToLast):
    """Units that a task has no use for stay; others are retrained; units are added where the loss stays high, and split
    where they moved too far from what they were.

    The first task trains with a penalty on |W|. A later one, in four stages:
    select: the head alone, sparse; units are selected that it reads, and those that these read, by weights that are
    not 0. retrain: weights between selected units, near those of the last task (L2). expand: if the loss stayed high,
    new units, sparse and whole units at once; useless ones go. split: of the units that moved farther than a threshold,
    copies stay where they moved to and belong to the task; the originals go back, and all weights train, near those of
    the last task. Every task reads the units that were there when it was learned.
    """

    title: ClassVar[str] = "DEN"
    only_for: ClassVar[str | None] = CLASSIFIER
    owns: ClassVar[frozenset[Part]] = frozenset(PARTS)

    name: Literal["den"] = "den"
    strength: Annotated[NonNegative, Doc("lambda, by which weights are held near those of the last task")] = 0.5
    l1: Annotated[NonNegative, Doc("weight of |W|_1 in the first task, and of new units")] = 5e-4
    head_l1: Annotated[NonNegative, Doc("the same for a later task's head while units are selected")] = 0.05
    group: Annotated[NonNegative, Doc("weight of sum_i |w_i|_2, w_i being what new unit i reads by")] = 0.1
    loss_threshold: Annotated[NonNegative, Doc("units are added where the retrained network's loss is above")] = 0.1
    drift: Annotated[NonNegative, Doc("a unit whose weights moved farther than this is split")] = 0.05
    units: Annotated[
        list[Units],
        Doc("the most units that a layer gains by expanding, and again by splitting; one number: each layer"),
    ] = field(default_factory=lambda: [10])

    def __post_init__(self) -> None:
        super().__post_init__()
        check_some_units("units", self.units)
        self._stage = FIRST
        self._drawn = 0  # what random numbers are drawn from
        self._loss = torch.zeros(2)  # the sum of losses while retraining ends, of all processes, and their number
        self._share, self._rate = 0.0, 0.0  # of the stage's steps; the learning rate
        self._selected: list[Tensor] = []  # by layer, True for units that are retrained
        self._network: nn.Module | None = None  # in training
        self._kept: list[tuple[Tensor, Tensor, Tensor]] = []  # parameters, where they stay, and as they were

    @property
    def own_first_task(self) -> dict[str, str]:
        return {"adapters": self.name, "l1": str(self.l1)}

    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        network = networks[CLASSIFIER]
        links = chain_of(network, f"method.name: {self.name} lets the layers of a chain grow")
        check_units("units", self.units, links)
        super().prepare(networks, adapters)
        let_grow(network, links)

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, exclude=(), parts=("norms", "heads"))

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        network = networks[CLASSIFIER]
        add_task(network, task, "identity", head_size=head_size)
        add_units(network, task, [0] * len(growing_banks(network)))
        self._stage, self._selected, self._drawn = FIRST, [], int(torch.randint(2**31, ()))

    def protected(self, role: str, networks: Networks) -> dict[str, nn.Parameter]:
        """What was there when the task began; between two tasks, all that is there."""
        pieces = {piece.name: piece.parameter for _, piece in all_pieces(networks[role])}
        held = self.memory["anchor"].get(role) or pieces
        return {name: parameter for name, parameter in pieces.items() if name in held}

    def stages(self, first: bool) -> list[MethodStage]:
        return super().stages(first) if first else [
            MethodStage(name, share, whole_schedule=name != SELECT) for name, share in SHARES.items()
        ]  # fmt: skip

    def begin_stage(self, networks: Networks, task: str, stage: str) -> None:
        network, self._stage = networks[CLASSIFIER], stage
        with torch.random.fork_rng():
            torch.manual_seed(self._drawn + STAGES.index(stage))
            if stage == RETRAIN:
                self._loss = torch.zeros(2)
            elif stage == EXPAND and self._loss[0] > self.loss_threshold * self._loss[1]:
                arrange_units(network, task, [[NEW] * count for count in self._most(network)])
            elif stage == SPLIT:
                self._split(network, task)

    def end_stage(self, networks: Networks, task: str, stage: str) -> None:
        network = networks[CLASSIFIER]
        if stage == SELECT:
            self._selected = selected_units(network, task)
        elif stage == EXPAND:
            drop_dead_units(network, task)

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        network = self._network = networks[CLASSIFIER]
        super().trainable(networks, task)  # what is remembered goes to where the network is
        train_only(network, task, shared=self._stage == FIRST)
        if self._stage == SELECT:
            network.requires_grad_(False)
            head_of(network, task).requires_grad_(True)
        elif self._stage in (RETRAIN, SPLIT):
            for parameter in self.protected(CLASSIFIER, networks).values():
                parameter.requires_grad_(True)
        self._kept = list(self._unselected(network, task)) if self._stage == RETRAIN else []
        return {CLASSIFIER: [parameter for parameter in network.parameters() if parameter.requires_grad]}

    def _unselected(self, network: nn.Module, task: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Parameters, True for entries that retraining leaves alone, and what these are: of the head, 0."""
        read = head_of(network, task).weight
        columns = self._selected[-1].repeat_interleave(read.shape[1] // len(self._selected[-1])).to(read.device)
        yield read, ~columns.expand_as(read), torch.zeros_like(read)
        anchor = self.memory["anchor"][CLASSIFIER]
        for bank, piece in all_pieces(network):
            if piece.name in anchor:
                parameter, rows = piece.parameter, self._selected[bank.place][piece.units]
                opened = rows.view(-1, *[1] * (parameter.dim() - 1))
                if piece.inputs is not None and bank.place:
                    columns = self._selected[bank.place - 1].repeat_interleave(bank.positions)[piece.inputs]
                    opened = opened & columns.view(-1, *[1] * (parameter.dim() - 2))
                yield parameter, ~opened.expand_as(parameter).to(parameter.device), anchor[piece.name]

    def groups(self, role: str, parameters: list[nn.Parameter]) -> list[Group]:
        """Weight decay would move what is held where it is."""
        if not self.memory["anchor"]:
            return [Group(parameters)]
        held = set(self.protected(role, {role: cast(nn.Module, self._network)}).values())
        own = [parameter for parameter in parameters if parameter not in held]
        return [Group(own), Group([parameter for parameter in parameters if parameter in held], decay=0.0)]

    def begin_step(self, role: str, networks: Networks, moment: Moment) -> None:
        self._share, self._rate = moment.share, moment.rate or 0.0

    def objective(self, stage: str, batch: Batch, usual: Callable[[], Tensor]) -> Tensor:
        loss = usual()
        if stage == RETRAIN:
            told = torch.stack([loss.detach(), torch.ones_like(loss)])
            if torch.distributed.is_initialized():
                torch.distributed.all_reduce(told)  # so that all processes know, and decide, the same
            ending = self._share >= 1 - TAIL
            self._loss = self._loss.to(told.device) + told if ending else told  # of a short stage the last step counts
        return loss

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        return super().penalty(role, networks, batch) if self._stage in (RETRAIN, SPLIT) else 0.0

    @torch.no_grad()
    def after_step(self, role: str, networks: Networks) -> None:
        network = networks[role]
        if self._stage == FIRST:
            for bank in growing_banks(network):
                shrink(cast(Tensor, bank.layer.weight), self._rate * self.l1)
        elif self._stage == SELECT:
            shrink(head_of(network, task_names(network)[-1]).weight, self._rate * self.head_l1)
        elif self._stage == EXPAND:
            for block in own_blocks(network, task_names(network)[-1]):
                for weight in (block.right, block.bottom):
                    if weight is not None:
                        shrink(weight, self._rate * self.l1)
                if block.bottom is not None:
                    shrink_rows(block.bottom, self._rate * self.group)
        for parameter, stays, before in self._kept:
            parameter.copy_(torch.where(stays, before, parameter))

    def _most(self, network: nn.Module) -> list[int]:
        return each_of(self.units, len(growing_banks(network)))

    @torch.no_grad()
    def _split(self, network: nn.Module, task: str) -> None:
        """Copy the units that moved farthest, and put the originals back."""
        anchor, banks = self.memory["anchor"][CLASSIFIER], growing_banks(network)
        own, copied = [], []
        for bank, block, most in zip(banks, own_blocks(network, task), self._most(network), strict=True):
            moved = drifts(network, bank, anchor)
            farthest = moved.argsort(descending=True, stable=True)[:most]
            copied.append([int(unit) for unit in farthest if moved[unit] > self.drift])
            own.append([*range(len(moved), len(moved) + block.units), *copied[-1]])
        arrange_units(network, task, own)
        for bank, piece in all_pieces(network):
            if piece.name in anchor:
                rows = [unit - piece.units.start for unit in copied[bank.place] if unit in piece]
                piece.parameter[rows] = anchor[piece.name][rows]

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        self.memory = {slot: {} for slot in self.slots}  # so that all that is there now is protected
        super().end_task(networks, task, probe)
        self._stage, self._selected, self._kept = FIRST, [], []

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        """Heads and normalisation of earlier tasks."""
        network = networks[CLASSIFIER]
        moving = {f"{name}." for name, bank in named_banks(network) if bank.part == "transforms"}
        others = state_of_others(network, task, theta=False)
        return {key: tensor for key, tensor in others.items() if not any(f": {name}" in key for name in moving)}

    def figures(self) -> dict[str, float]:
        """Units that the task adds, in all layers, and the share of the units there were that it retrains."""
        if self._network is None or len(tasks := task_names(self._network)) < 2:
            return {}
        added = {"added-units": float(sum(units_of(self._network, tasks[-1])))}
        selected = torch.cat(self._selected).double() if self._selected else None
        return added if selected is None else {**added, "retrained-units": float(selected.mean())}

    def state_dict(self) -> Tensors:
        facts = [STAGES.index(self._stage), self._drawn, *self._loss.tolist()]
        selected = {f"{SELECTED}{place}": units for place, units in enumerate(self._selected)}
        return {FACTS: torch.tensor(facts, dtype=torch.float64), **selected, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        own = {key: tensor for key, tensor in state.items() if key == FACTS or key.startswith(SELECTED)}
        super().load_state_dict({key: tensor for key, tensor in state.items() if key not in own}, networks)
        stage, drawn, *loss = own.pop(FACTS).tolist()
        self._stage, self._drawn, self._loss = STAGES[int(stage)], int(drawn), torch.tensor(loss)
        self._selected = [own[f"{SELECTED}{place}"].clone() for place in range(len(own))]
