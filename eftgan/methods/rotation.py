"""Rotation labels: a class is four classes, one for each quarter turn of its images.

A network that must tell how an image was turned learns what its own classes look like, not only how they differ, and is
then less sure of images of other tasks (Tack et al., CSI, NeurIPS 2020; for task inference: Kim et al., NeurIPS 2022).
Outputs stand turn by turn: those of the first C are the classes as they stand, the next C a quarter turn, and so on.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

TURNS = 4
Rotations: TypeAlias = Literal["none", "one", "all"]


def turned(images: Tensor, turn: int) -> Tensor:
    """Images (B, C, S, S) by so many quarter turns."""
    return torch.rot90(images, turn, (2, 3)) if turn else images


def one_turn_each(images: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Every image in one turn, drawn at random, with the label of its class in that turn."""
    turns = torch.randint(TURNS, (len(images),), generator=generator).to(images.device)
    rotated = torch.stack([turned(images, turn) for turn in range(TURNS)])  # (4, B, C, S, S)
    return rotated[turns, torch.arange(len(images), device=images.device)], labels + classes * turns


def all_turns(images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Every image in all four turns (4B, C, S, S), with the labels of its class in each."""
    rotated = [turned(images, turn) for turn in range(TURNS)]
    return torch.cat(rotated), torch.cat([labels + classes * turn for turn in range(TURNS)])


def averaged_logits(outputs: Sequence[Tensor]) -> Tensor:
    """Logits (B, classes) from the outputs (B, turns * classes) for the images in every turn: each class's mean.

    One tensor of outputs stands for heads without rotation labels, and is returned as it is.
    """
    if len(outputs) == 1:
        return outputs[0]
    return torch.stack([each.chunk(len(outputs), dim=1)[turn] for turn, each in enumerate(outputs)]).mean(0)
