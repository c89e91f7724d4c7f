"""GAN losses against values worked out by hand."""

from math import log

import pytest
import torch

from eftgan.gan.losses import (
    ADVERSARIAL,
    colour_consistency,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
    pixel_statistics,
    reconstruction_loss,
)


def test_logistic_losses_at_known_probabilities():
    # sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4, sigmoid(0) = 1/2
    real, fake = torch.tensor([log(3), 0.0]), torch.tensor([-log(3), 0.0])
    mean_real = (log(4 / 3) + log(2)) / 2
    mean_fake = (log(4 / 3) + log(2)) / 2
    assert discriminator_loss(real, fake).item() == pytest.approx(mean_real + mean_fake, rel=1e-6)
    assert generator_loss(fake).item() == pytest.approx((log(4) + log(2)) / 2, rel=1e-6)


def test_hinge_losses_by_hand():
    losses = ADVERSARIAL["hinge"]
    real, fake = torch.tensor([2.0, 0.5]), torch.tensor([-3.0, 1.0])
    assert losses.discriminator(real, fake).item() == pytest.approx((0 + 0.5) / 2 + (0 + 2) / 2)
    assert losses.generator(fake).item() == pytest.approx(1.0)


def test_reconstruction_is_measured_in_the_size_of_what_is_drawn():
    images = torch.tensor([[[[0.0, 2.0], [4.0, 6.0]]]])  # mean 3
    assert reconstruction_loss(torch.tensor([[[[1.0]]]]), images).item() == 2
    assert reconstruction_loss(images + 0.5, images).item() == 0.5


def test_losses_stay_finite_and_keep_their_gradient_where_the_discriminator_is_sure():
    fake = torch.tensor([-1000.0], requires_grad=True)
    loss = generator_loss(fake)
    loss.backward()
    assert loss.item() == 1000
    assert fake.grad.item() == -1
    assert discriminator_loss(torch.tensor([-1000.0]), torch.tensor([1000.0])).item() == 2000


def test_gradient_penalty_of_a_linear_and_a_quadratic_discriminator():
    images = torch.tensor([[1.0, 2.0], [3.0, 0.0]]).view(2, 1, 1, 2).requires_grad_()
    weight = torch.tensor([3.0, 4.0], requires_grad=True)
    linear = (images.flatten(1) * weight).sum(dim=1)
    penalty = gradient_penalty(linear, images)
    assert penalty.item() == (3**2 + 4**2) / 2  # the same gradient at every image
    penalty.backward()
    assert weight.grad.tolist() == [3, 4]  # the penalty teaches the discriminator
    quadratic = images.flatten(1).square().sum(dim=1)  # its gradient is 2 x
    assert gradient_penalty(quadratic, images).item() == ((4 + 16) / 2 + 36 / 2) / 2


def test_pixel_statistics_by_hand():
    red, green = [0.0, 2.0, 0.0, 2.0], [1.0, 1.0, 3.0, 3.0]
    mean, covariance = pixel_statistics(torch.tensor([[red, green]]).view(1, 2, 2, 2))
    assert mean.tolist() == [[1, 2]]
    assert covariance.tolist() == [[[1, 0], [0, 1]]]


def test_colour_consistency_by_hand():
    coarse = torch.zeros(1, 2, 1, 2)  # mean (0, 0), covariance 0
    fine = torch.tensor([[[0.0, 2.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]]]).view(1, 2, 2, 2)
    # mean (1, 0): mse 1/2; covariance 1 in one of four entries: mse 1/4
    assert colour_consistency(coarse, fine).item() == pytest.approx(50 * 0.5 + 250 * 0.25)


def test_colour_consistency_ignores_where_pixels_are_and_teaches_the_finer_stage_only():
    coarse = torch.randn(2, 3, 4, 4, requires_grad=True)
    same = coarse.detach().repeat_interleave(2, 2).repeat_interleave(2, 3).flip(3)
    assert colour_consistency(coarse, same).item() == pytest.approx(0, abs=1e-8)
    fine = torch.randn(2, 3, 8, 8, requires_grad=True)
    colour_consistency(coarse, fine).backward()
    assert coarse.grad is None
    assert fine.grad.abs().sum() > 0
