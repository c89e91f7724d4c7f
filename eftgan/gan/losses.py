"""Losses of GANs by name, from logits; a family of networks says which ones it is trained with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

MEAN_WEIGHT = 50.0
COVARIANCE_WEIGHT = 250.0


@dataclass(frozen=True)
class Adversarial:
    """What a discriminator and the generator each make small; both are means over the batch."""

    discriminator: Callable[[Tensor, Tensor], Tensor]  # of the logits of real and of generated images
    generator: Callable[[Tensor], Tensor]  # of the logits of generated images


def discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(fake)), each a mean over the batch."""
    return F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()


def generator_loss(fake_logits: Tensor) -> Tensor:
    """-log D(fake), a mean over the batch: its gradient does not vanish where D is sure."""
    return F.softplus(-fake_logits).mean()


def gradient_penalty(real_logits: Tensor, real_images: Tensor) -> Tensor:
    """R1 (Mescheder et al. 2018): half the squared gradient of D's logit with respect to each real image, averaged.

    Images (B, C, H, W).
    """
    (gradient,) = torch.autograd.grad(real_logits.sum(), real_images, create_graph=True)
    return gradient.square().sum(dim=(1, 2, 3)).mean() / 2


def colour_consistency(coarse_images: Tensor, fine_images: Tensor) -> Tensor:
    """Pulls the finer stage's colours towards the coarser one's (StackGAN-v2, section 3.3).

    Both (B, C, any, any). Only the finer stage learns: the coarser one is detached.
    """
    coarse_mean, coarse_covariance = pixel_statistics(coarse_images.detach())
    fine_mean, fine_covariance = pixel_statistics(fine_images)
    return MEAN_WEIGHT * F.mse_loss(fine_mean, coarse_mean) + COVARIANCE_WEIGHT * F.mse_loss(
        fine_covariance, coarse_covariance
    )


def pixel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of each image's pixels."""
    pixels = images.flatten(2)  # (B, C, H*W)
    mean = pixels.mean(dim=2, keepdim=True)
    centred = pixels - mean
    covariance = torch.bmm(centred, centred.transpose(1, 2)) / pixels.size(2)
    return mean.squeeze(2), covariance


def colours_like_coarser(fakes: list[Tensor]) -> Tensor | float:
    """Each finer stage's colours like those of the stage before it, summed over the pairs."""
    return sum(colour_consistency(coarse, fine) for coarse, fine in itertools.pairwise(fakes))


def hinge_discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """max(0, 1 - D(real)) + max(0, 1 + D(fake)), each a mean over the batch."""
    return F.relu(1 - real_logits).mean() + F.relu(1 + fake_logits).mean()


def hinge_generator_loss(fake_logits: Tensor) -> Tensor:
    """-D(fake), a mean over the batch."""
    return -fake_logits.mean()


def reconstruction_loss(drawn: Tensor, images: Tensor) -> Tensor:
    """Mean absolute difference of what a discriminator draws (B, C, h, w) from the images, averaged to that size."""
    return (drawn - F.adaptive_avg_pool2d(images, (drawn.shape[2], drawn.shape[3]))).abs().mean()


ADVERSARIAL: dict[str, Adversarial] = {
    "logistic": Adversarial(discriminator_loss, generator_loss),  # non-saturating (Goodfellow et al. 2014)
    "hinge": Adversarial(hinge_discriminator_loss, hinge_generator_loss),  # (Lim and Ye 2017)
}
RECONSTRUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"l1": reconstruction_loss}
REGULARISERS: dict[str, Callable[[list[Tensor]], Tensor | float]] = {"colour-consistency": colours_like_coarser}
