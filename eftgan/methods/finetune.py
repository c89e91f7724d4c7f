"""Fine-tuning: the lower bound on remembering and the yardstick for learning a new task."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from eftgan.methods.base import Method


@dataclass
class Finetune(Method):
    """Train the whole network on one task after another."""

    title: ClassVar[str] = "Finetune"

    name: Literal["finetune"] = "finetune"
