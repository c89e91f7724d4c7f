"""Supermasks in superposition, with the task given in training and at test (Wortsman et al., NeurIPS 2020)."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.init import _calculate_fan_in_and_fan_out
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import Doc

from eftgan.adapters import AdapterConfig, named_banks
from eftgan.adapters.transforms import Option
from eftgan.config import Positive
from eftgan.methods.exchange import Networks, Probe
from eftgan.methods.masks import LearnsMasks
from eftgan.names import CLASSIFIER


@dataclass
class SupSup(LearnsMasks):
    """SupSup: random weights that never train, and for every task the subnetwork of its largest scores.

    V_t = W * top_k(|s_t|) with W = sign(w) sqrt(2 / fan in), dL/ds := dL/dm * sign(s). BatchNorm has no scale
    and shift, and its statistics are every task's own. Only scores and heads train.
    """

    title: ClassVar[str] = "SupSup"
    only_for: ClassVar[str | None] = "classifier"  # nothing was found in print about GANs of random weights

    name: Literal["supsup"] = "supsup"
    budget: Annotated[
        Positive, Doc("S: of a layer with K outputs, C inputs and n weights, min(1/2, S (K + C) / n) are kept")
    ] = 16.0
    density: Annotated[Annotated[float, Field(gt=0, le=1)] | None, Doc("share kept of every layer instead")] = None
    transfer: Annotated[bool, Doc("start from the mean of all earlier tasks' scores, not at random")] = False

    def __post_init__(self) -> None:
        self.sums: dict[str, Tensor] = {}  # of the finished tasks' scores, by layer
        self.finished = 0

    @property
    def init(self) -> str:
        return "random"

    @property
    def first_init(self) -> str:
        return "random"

    @property
    def own_first_task(self) -> dict[str, str]:
        kept = {"budget": str(self.budget)} if self.density is None else {"density": str(self.density)}
        return {"adapters": "random weights", "score_rate": str(self.score_rate), **kept}

    @property
    def follows_training(self) -> bool:
        """With transfer: the scores are gone when a task is finished."""
        return self.transfer

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        options: dict[str, Option] = {"rule": "top", "budget": self.budget, "density": self.density or 0.0}
        return dataclasses.replace(config, kind="mask", options=options)

    @torch.no_grad()
    def prepare(self, networks: Networks, adapters: Mapping[str, AdapterConfig]) -> None:
        network = networks[CLASSIFIER]
        for module in network.modules():
            if isinstance(module, _BatchNorm):
                module.affine = False
                for name in ("weight", "bias"):
                    module.register_parameter(name, None)
        super().prepare(networks, adapters)
        for _, bank in named_banks(network):
            if bank.part == "transforms":
                _make_constant(bank.layer)

    def trains_shared(self, role: str, first: bool) -> bool:
        return False

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, head_size=head_size)
        for name, mask in self.masks(CLASSIFIER, networks[CLASSIFIER], task).items():
            if self.sums:
                assert mask.scores is not None
                mask.scores.data.copy_(self.sums[name] / self.finished)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        if self.transfer:
            for name, mask in self.masks(CLASSIFIER, networks[CLASSIFIER], task).items():
                assert mask.scores is not None
                scores = mask.scores.detach()
                self.sums[name] = self.sums[name] + scores if name in self.sums else scores.clone()
            self.finished += 1
        super().end_task(networks, task, probe)

    @property
    def files_suffice(self) -> bool:
        """Not with transfer: the scores of earlier tasks are in no file."""
        return not self.transfer

    @property
    def lets_go(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Tensor]:
        if not self.sums:
            return {}
        return {"finished": torch.tensor(self.finished), **{f"sum/{name}": each for name, each in self.sums.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.sums = {key.removeprefix("sum/"): each for key, each in state.items() if key.startswith("sum/")}
        self.finished = int(state.get("finished", torch.tensor(0)))


def _make_constant(layer: nn.Module) -> None:
    """The layer's weights in one size, with the signs that they have; no bias."""
    assert isinstance(layer.weight, nn.Parameter)
    fan_in, _ = _calculate_fan_in_and_fan_out(layer.weight)
    layer.weight.copy_(layer.weight.sign() * (2 / fan_in) ** 0.5)
    if isinstance(layer.bias, nn.Parameter):
        layer.bias.zero_()
