"""Efficient feature transformations (Verma et al., CVPR 2021)."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, task_modules, task_names
from eftgan.config import OnlyFor, Positive, Share
from eftgan.errors import UserError
from eftgan.methods.exchange import Batch, Networks, Probe
from eftgan.methods.feature_margin import FeatureMargin
from eftgan.methods.frozen_base import FrozenBase
from eftgan.methods.heads import carry_head
from eftgan.methods.rotation import TURNS, Rotations, all_turns, one_turn_each
from eftgan.names import CLASSIFIER


@dataclass
class Eft(FrozenBase):
    """theta trains in the first task and is frozen; every task owns its transforms, normalisation and heads."""

    title: ClassVar[str] = "EFT"

    name: Literal["eft"] = "eft"
    init: Annotated[
        str, Doc("where tau_t starts: previous, identity, random, a task's name, or nearest (of the likest images)")
    ] = "previous"
    first_init: Annotated[Literal["identity", "random"], Doc("where tau_1 starts")] = "identity"
    first_transforms: Annotated[
        Literal["train", "neutral"],
        Doc(
            "neutral: tau_1's transforms stay untrained, so that the first task fits adapters of every kind and size; "
            "whole discriminators then have none"
        ),
    ] = "train"
    discriminator: Annotated[
        Literal["eft", "full", "restart"],
        Doc(
            "eft: as the paper; full: the discriminators train whole, in no task's file; restart: the same, and every "
            "later task begins with those of the first"
        ),
        OnlyFor("gan"),
    ] = "eft"
    heads: Annotated[
        Literal["fresh", "previous"],
        Doc("previous: a later task's output layer starts from that of the task before, if it has as many classes"),
        OnlyFor("classifier"),
    ] = "fresh"
    margin: Annotated[
        FeatureMargin | None, Doc("keep the features of the tasks apart; null: off"), OnlyFor("classifier")
    ] = None

    rotations: Annotated[
        Rotations,
        Doc(
            "each class in four quarter turns, averaged at test time; heads are four times as large. one: every image "
            "in one turn per step; all: in all four, at four times the cost"
        ),
        OnlyFor("classifier"),
    ] = "none"
    label_smoothing: Annotated[
        Share, Doc("share of a label's weight that is spread over all outputs"), OnlyFor("classifier")
    ] = 0.0
    logit_norm: Annotated[
        Positive | None,
        Doc("cross-entropy of logits / (their norm * this), e.g. 0.04: no gain in being ever surer; null: as they are"),
        OnlyFor("classifier"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_transforms == "neutral" and self.first_init == "random":
            raise UserError("method.first_transforms: neutral keeps tau_1 at its neutral start; first_init: random not")

    @property
    def own_first_task(self) -> dict[str, str]:
        keys = ("first_init", "base", "first_transforms", "rotations", "label_smoothing", "logit_norm")
        usual = {each.name: each.default for each in dataclasses.fields(self)}
        return {key: str(getattr(self, key)) for key in keys if getattr(self, key) != usual[key]}

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        if self.first_transforms == "neutral" and not self._adapts(role):
            return dataclasses.replace(config, parts=("norms", "heads"))
        return config

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        parameters = super().trainable(networks, task)
        for role, network in networks.items():
            held = self._neutral(network, task)
            for parameter in held.values():
                parameter.requires_grad_(False)
            parameters[role] = [parameter for parameter in parameters[role] if parameter.requires_grad]
        return parameters

    def _neutral(self, network: nn.Module, task: str) -> dict[str, nn.Parameter]:
        """Parameters of transforms that the task must leave in their neutral state."""
        if self.first_transforms == "train" or task_names(network)[0] != task:
            return {}
        modules = enumerate(task_modules(network, task, "transforms"))
        return {f"{index}: {key}": p for index, module in modules for key, p in module.named_parameters()}

    def frozen(self, networks: Networks, task: str) -> dict[str, Tensor]:
        neutral = {
            f"{role}: transform {key}": parameter.detach()
            for role, network in networks.items()
            for key, parameter in self._neutral(network, task).items()
        }
        return super().frozen(networks, task) | neutral

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        if self.heads == "previous" and CLASSIFIER in networks and len(task_names(networks[CLASSIFIER])) > 1:
            carry_head(networks[CLASSIFIER])
        if self.margin:
            self.margin.begin()

    @property
    def outputs_per_class(self) -> int:
        return 1 if self.rotations == "none" else TURNS

    def views(self, images: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if self.rotations == "one":
            return one_turn_each(images, labels, classes, generator)
        return all_turns(images, labels, classes) if self.rotations == "all" else (images, labels)

    def objective(self, stage: str, batch: Batch, usual: Callable[[], Tensor]) -> Tensor:
        if not self.label_smoothing and self.logit_norm is None:
            return usual()
        assert batch.labels is not None  # a classifier's batches have them
        logits = batch.outputs
        if self.logit_norm is not None:  # Wei et al., ICML 2022, eq. 5
            logits = F.normalize(logits, dim=1) / self.logit_norm
        return F.cross_entropy(logits, batch.labels, label_smoothing=self.label_smoothing)

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        if role != CLASSIFIER or self.margin is None:
            return 0.0
        earlier = task_names(networks[role])[:-1]
        if not earlier:
            return 0.0
        assert batch.features is not None  # a classifier's batches have them
        return self.margin.loss(networks[role], earlier, batch.inputs, batch.features)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        if self.margin and CLASSIFIER in networks:
            self.margin.remember(networks[CLASSIFIER], task, probe.inputs(CLASSIFIER))
        super().end_task(networks, task, probe)

    def figures(self) -> dict[str, float]:
        return {"active-margin": self.margin.active_share} if self.margin else {}

    @property
    def files_suffice(self) -> bool:
        """Not where the margin remembers statistics either."""
        return super().files_suffice and not (self.margin and self.margin.statistics == "stored")

    @property
    def lets_go(self) -> bool:
        """Not where the margin looks at every earlier task's features."""
        return super().lets_go and not self.margin

    def state_dict(self) -> dict[str, Tensor]:
        return (self.margin.state_dict() if self.margin else {}) | super().state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        super().load_state_dict(state, networks)
        if self.margin:
            self.margin.load_state_dict(state)
