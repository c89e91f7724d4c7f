"""Generators with upsampling in its fast form, against the plain form: upsample, then convolve."""

import copy
from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.harness import Ratio, measure
from benchmarks.networks import STACKGAN, adapted, folded
from benchmarks.training import gan_step
from eftgan.adapters import fuse_upsampling, merge_task, train_only
from eftgan.adapters.codes import fuse_codes
from eftgan.adapters.merge import fast_layout
from eftgan.adapters.upsampling import unfuse_upsampling
from eftgan.models.gans import StackGan

THREE_STAGES = StackGan(stages=3, base_size=64, ngf=16, ndf=16)
PLAIN, STEP = "plain form, BatchNorm folded", "plain form"


def drawing(family: StackGan) -> nn.Module:
    torch.manual_seed(0)
    return family.generator()


def judging(family: StackGan) -> list[nn.Module]:
    torch.manual_seed(1)
    return list(family.discriminators().values())


def fast(network: nn.Module) -> nn.Module:
    """A folded network as merged ones are."""
    network = copy.deepcopy(network)
    fuse_codes(network)
    fuse_upsampling(network)
    unfuse_upsampling(network)
    return fast_layout(network)


def benchmarks() -> Iterator[Ratio]:
    """Goals: 0.6 and 0.75 for sampling, 0.75 for a first task's step, 0.55 for a later one's."""
    plain = folded(drawing(STACKGAN))
    yield _sampling("sampling, StackGAN-v2 64x64 ngf 64, no adapters", fast(plain), plain, PLAIN, 0.6)
    merged = merge_task(adapted(drawing(STACKGAN), 32, 16, 1), "t1")
    what = "plain form without adapters, BatchNorm folded"
    yield _sampling("sampling, one EFT task a32 b16, merged", merged, plain, what, 0.75)
    yield _first_step("training step of the first task, StackGAN-v2 64x64 ngf 64", STACKGAN)
    yield _later_step()
    yield _adam()
    plain = folded(drawing(THREE_STAGES))
    yield _sampling("sampling, three stages 64 to 256, ngf 16", fast(plain), plain, PLAIN, 0.6)
    yield _first_step("training step of the first task, three stages 64 to 256, ngf 16", THREE_STAGES)


@torch.no_grad()
def _sampling(name: str, ours: nn.Module, reference: nn.Module, what: str, goal: float) -> Ratio:
    z = torch.randn(32, 100)
    return measure(name, lambda: ours(z), lambda: reference(z), what, goal, rounds=9)


def _first_step(name: str, family: StackGan) -> Ratio:
    sides = []
    for fused in (True, False):
        generator = adapted(drawing(family), 32, 16, 1)
        if fused:
            fuse_upsampling(generator)
            fuse_codes(generator)
        discriminators = [adapted(each, 32, 16, 1, ("logits",)) for each in judging(family)]
        own = [train_only(each, "t1", shared=True) for each in (generator, *discriminators)]
        sides.append(gan_step(generator, discriminators, own, family.sizes, fused=fused))
    return measure(name, *sides, STEP, 0.75, rounds=9)


def _adam() -> Ratio:
    """One step over all weights of the generator."""
    sides = []
    for fused in (True, False):
        weights = [nn.Parameter(weight.detach().clone()) for weight in drawing(STACKGAN).parameters()]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        sides.append(torch.optim.Adam(weights, 2e-4, (0.5, 0.999), fused=fused).step)
    return measure("Adam, fused, StackGAN-v2 64x64 ngf 64", *sides, "Adam as it comes", 0.5)


def _later_step() -> Ratio:
    generator, discriminators = drawing(STACKGAN), judging(STACKGAN)
    parameters = [list(each.parameters()) for each in (generator, *discriminators)]
    whole = gan_step(generator, discriminators, parameters, STACKGAN.sizes)
    generator = adapted(drawing(STACKGAN), 32, 16, 2)
    fuse_upsampling(generator)
    discriminators = [adapted(each, 32, 16, 2, ("logits",)) for each in judging(STACKGAN)]
    own = [train_only(each, "t2") for each in (generator, *discriminators)]
    ours = gan_step(generator, discriminators, own, STACKGAN.sizes, fused=True)
    return measure(
        "training step, task >= 2, EFT, StackGAN-v2 64x64",
        ours,
        whole,
        "fine-tuning step in plain form",
        0.55,
        rounds=9,
    )
