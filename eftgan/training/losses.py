"""The GAN's losses, from logits: non-saturating logistic (Goodfellow et al. 2014), R1, and colour consistency."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MEAN_WEIGHT = 50.0
COVARIANCE_WEIGHT = 250.0


def discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(fake)), each a mean over the batch."""
    return F.softplus(-real_logits).mean() + F.softplus(fake_logits).mean()


def generator_loss(fake_logits: Tensor) -> Tensor:
    """-log D(fake), a mean over the batch: its gradient does not vanish where D is sure."""
    return F.softplus(-fake_logits).mean()


def gradient_penalty(real_logits: Tensor, real_images: Tensor) -> Tensor:
    """R1 (Mescheder et al. 2018): half the squared gradient of D's logit by each real image (B, C, H, W), averaged."""
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
