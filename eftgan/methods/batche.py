"""BatchEnsemble for lifelong learning (Wen et al., ICLR 2020)."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from typing_extensions import Doc

from eftgan.adapters import AdapterConfig
from eftgan.methods.eft import Eft


@dataclass
class BatchEnsemble(Eft):
    """Every weight of the first task times a rank-one matrix of the task's own, V = W * (s r^T), eqs. 1 to 4.

    All else is as with EFT: theta trains in the first task and is frozen, tasks own normalisation and heads. `random`
    draws signs for r and s, as in the comparison of SupSup (Wortsman et al. 2020); a task that starts so has lost the
    features of the one before it, which `previous` keeps.
    """

    title: ClassVar[str] = "BatchEnsemble"

    name: Literal["batche"] = "batche"  # type: ignore[assignment]
    init: Annotated[
        str, Doc("where r and s start: previous, identity (ones), random (signs), a task's name, or nearest")
    ] = "previous"
    first_init: Annotated[Literal["identity", "random"], Doc("where those of the first task start")] = "identity"

    @property
    def own_first_task(self) -> dict[str, str]:
        return super().own_first_task | {"transforms": self.name}

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        return dataclasses.replace(config, kind="batche", options={}, mode="serial", sizes={})
