"""BatchEnsemble for lifelong learning (Wen et al., ICLR 2020)."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from typing_extensions import Doc

from eftgan.adapters import AdapterConfig
from eftgan.config import OnlyFor
from eftgan.methods.frozen_base import FrozenBase


@dataclass
class BatchEnsemble(FrozenBase):
    """BatchEnsemble: task t computes with W * (s_t r_t^T); W trains in the first task only.

    r and s, one number per input and output channel of every layer, normalisation and head are a task's own. A
    BatchNorm behind a layer undoes the size of s, so that half of what a task owns can but turn signs there.
    """

    title: ClassVar[str] = "BatchE"

    name: Literal["batche"] = "batche"
    start: Annotated[
        Literal["ones", "signs", "previous"],
        Doc(
            "where r and s of every task start: ones; random signs, as in the comparison of SupSup, which a later task "
            "has to learn against; previous: ones, then those of the task before"
        ),
    ] = "ones"
    discriminator: Annotated[
        Literal["batche", "full", "restart"],
        Doc("batche: as the generator; full, restart: the discriminators train whole, as with eft"),
        OnlyFor("gan"),
    ] = "batche"

    @property
    def init(self) -> str:
        return {"ones": "identity", "signs": "random", "previous": "previous"}[self.start]

    @property
    def first_init(self) -> str:
        return "random" if self.start == "signs" else "identity"

    @property
    def own_first_task(self) -> dict[str, str]:
        signs = {"start": self.start} if self.start == "signs" else {}
        return {"adapters": self.name, **signs} | ({"base": self.base} if self.base != "train" else {})

    def banks(self, role: str, config: AdapterConfig) -> AdapterConfig:
        drawn = "signs" if self.start == "signs" else "ones"
        return dataclasses.replace(config, kind="batche", options={"start": drawn})
