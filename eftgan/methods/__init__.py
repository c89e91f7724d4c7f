"""Continual-learning methods: one idea a file; a new one is a file, a line here, a YAML and a test."""

from typing import Annotated

from pydantic import Field

from eftgan.methods.base import Batch, Method, Networks, Probe
from eftgan.methods.eft import Eft
from eftgan.methods.finetune import Finetune

METHODS: dict[str, type[Method]] = {"eft": Eft, "finetune": Finetune}
AnyMethod = Annotated[Eft | Finetune, Field(discriminator="name")]

__all__ = ["METHODS", "AnyMethod", "Batch", "Eft", "Finetune", "Method", "Networks", "Probe"]
