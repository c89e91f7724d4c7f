"""What each network of a GAN minimises on a batch: the losses of its family, and the penalties of the training."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from eftgan.data.streams import stream
from eftgan.gan.diffaugment import diff_augment
from eftgan.gan.experiment import GanTraining
from eftgan.gan.losses import ADVERSARIAL, RECONSTRUCTIONS, REGULARISERS, Adversarial, gradient_penalty
from eftgan.models.gans import GanFamily

PENALTY_EVERY = 4  # batches: lazy regularisation (Karras et al. 2020), a fraction of the cost of every batch

Augment = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Objectives:
    """The losses that one family is trained with, as the training's options have them."""

    family: GanFamily
    options: GanTraining

    @property
    def adversarial(self) -> Adversarial:
        return ADVERSARIAL[self.family.adversarial]

    def discriminator(
        self, discriminate: nn.Module, real: Tensor, fake: Tensor, augment: Augment, batch_number: int
    ) -> Tensor:
        """Adversarial, what the family adds, and every few batches the penalty on the real images."""
        penalised = self.options.r1 > 0 and batch_number % PENALTY_EVERY == 0
        real = real.detach().requires_grad_(penalised)
        # Two forwards: BatchNorm must not mix real and fake statistics.
        shown = augment(real)
        if self.family.reconstruction:
            real_logits, drawn = discriminate(shown, reconstruct=True)
        else:
            real_logits = discriminate(shown)
        loss = self.adversarial.discriminator(real_logits, discriminate(augment(fake)))
        if self.family.reconstruction:
            loss = loss + RECONSTRUCTIONS[self.family.reconstruction](drawn, shown.detach())
        if penalised:
            loss = loss + self.options.r1 * PENALTY_EVERY * gradient_penalty(real_logits, real)
        return loss

    def generator(
        self,
        discriminators: Sequence[nn.Module],
        fakes: list[Tensor],
        augment: Augment,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> Tensor:
        """Adversarial over all stages, coarse to fine, and what else the family asks for."""
        with autocast():
            stages = zip(discriminators, fakes, strict=True)
            losses = [self.adversarial.generator(discriminate(augment(fake))) for discriminate, fake in stages]
        return functools.reduce(torch.add, losses) + sum(REGULARISERS[name](fakes) for name in self.family.regularisers)

    def augmenter(self, seed: int, task: str, batch_number: int, rank: int) -> Augment:
        """What discriminators see a batch through."""
        if not self.options.diffaugment:
            return nn.Identity()
        generator = stream(seed, task, "diffaugment", batch_number, rank)
        return lambda images: diff_augment(images, self.options.diffaugment, generator)
