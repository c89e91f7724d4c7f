"""Training steps of a later task, against fine-tuning the whole network without adapters."""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.harness import Ratio, measure, repeat
from benchmarks.networks import STACKGAN, TwoConvolutions, adapted, discriminator, generator, resnet
from eftgan.adapters import ConvTransform, select_task, train_only
from eftgan.gan.losses import discriminator_loss, generator_loss


def classifier_step(network: nn.Module, parameters: list[nn.Parameter], batch: int = 32) -> Callable[[], None]:
    """One SGD step on random images."""
    optimizer = torch.optim.SGD(parameters, 0.01, 0.9)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def step() -> None:
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def gan_step(
    drawing: nn.Module,
    judging: list[nn.Module],
    parameters: list[list[nn.Parameter]],
    sizes: list[int],
    naive: bool = False,
    fused: bool = False,
) -> Callable[[], None]:
    """One step of the trainer's kind: one generator forward, no weight gradients of D in the generator's turn."""
    optimizers = [torch.optim.Adam(each, 2e-4, (0.5, 0.999), fused=fused) for each in parameters]
    reals, z = [torch.randn(8, 3, size, size) for size in sizes], torch.randn(8, 100)
    discriminating = [parameter for each in parameters[1:] for parameter in each]

    def step() -> None:
        fakes = drawing(z)
        for judge, optimizer, real, fake in zip(judging, optimizers[1:], reals, fakes, strict=True):
            discriminator_loss(judge(real), judge(fake.detach())).backward()
            optimizer.step()
            optimizer.zero_grad()
        for parameter in discriminating:
            parameter.requires_grad_(naive)
        fakes = drawing(z) if naive else fakes
        sum(generator_loss(judge(fake)) for judge, fake in zip(judging, fakes, strict=True)).backward()
        for parameter in discriminating:
            parameter.requires_grad_(True)
        optimizers[0].step()
        for optimizer in optimizers:
            optimizer.zero_grad()

    return step


def benchmarks() -> Iterator[Ratio]:
    """Goals: 0.55, 0.75, and 1.05 for a hundred tasks."""
    full = resnet()
    whole = classifier_step(full, list(full.parameters()))
    two = adapted(resnet(), 8, 16, 2, ("head",))
    later = classifier_step(two, train_only(two, "t2"))
    what = "fine-tuning step without adapters"
    yield measure("training step, task >= 2, ResNet-18 a8 b16", later, whole, what, 0.55)
    bare = resnet()
    own = [p for m in bare.modules() if isinstance(m, (nn.BatchNorm2d, nn.Linear)) for p in m.parameters()]
    for parameter in set(bare.parameters()) - set(own):
        parameter.requires_grad_(False)
    yield measure(
        "the same if adapters cost nothing: BatchNorm and head alone train", classifier_step(bare, own), whole, what
    )
    drawing, judging = adapted(generator(), 32, 16, 2), [adapted(discriminator(), 32, 16, 2, ("logits",))]
    trained = [train_only(drawing, "t2"), train_only(judging[0], "t2")]
    own, naive = (gan_step(drawing, judging, trained, STACKGAN.sizes, naive=each) for each in (False, True))
    title = "training step, task >= 2, StackGAN-v2 64x64, plain form"
    yield measure(title, own, naive, "generator run twice, discriminator's weight gradients kept", 1.0)
    yield _adapters()
    hundred = adapted(resnet(), 8, 16, 100, ("head",))
    many = classifier_step(hundred, train_only(hundred, "t100"))
    yield measure("training step with 100 tasks", many, later, "with 2 tasks", 1.05)
    select = [repeat(lambda n=n, net=net: select_task(net, n), 50_000) for net, n in ((hundred, "t100"), (two, "t2"))]
    yield measure("selecting a task of 100", *select, "of 2", 1.05)


def _adapters() -> Ratio:
    """Forward and backward of all adapters of a StackGAN-v2 stage, fused against two separate convolutions."""
    shapes = [(1024, 8), (512, 16), (256, 32), (128, 64)]
    inputs = [torch.randn(8, channels, size, size, requires_grad=True) for channels, size in shapes]
    ours = [ConvTransform(channels, channels, 32, 16) for channels, _ in shapes]
    authors = [TwoConvolutions(channels, 32, 16) for channels, _ in shapes]

    def run(modules: list[nn.Module]) -> Callable[[], None]:
        def step() -> None:
            for module, x in zip(modules, inputs, strict=True):
                module(x).sum().backward()

        return step

    return measure("adapters of StackGAN-v2 a32 b16, fused", run(ours), run(authors), "two group convolutions", 0.75)
