"""Per-sample losses of a finished GAN task, each network's own: what a Fisher is made of."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from eftgan.data.augmentation import centre_crop, multiscale
from eftgan.data.streams import stream
from eftgan.gan.experiment import GanTask
from eftgan.methods import Probe
from eftgan.models.gans import GanFamily


def gan_probe(
    networks: Mapping[str, nn.Module],
    task: GanTask,
    seed: int,
    family: GanFamily,
    generator_loss: Callable[[list[Tensor]], Tensor],
    discriminator_loss: Callable[[Tensor, Tensor], Tensor],
) -> Probe:
    """In eval mode: the generator's loss on one noise, a discriminator's on one noise and one real image."""
    generator, *discriminators = networks
    sizes = family.sizes

    def losses(role: str) -> Iterator[Tensor]:
        images, device = task.images, next(networks[generator].parameters()).device
        for network in networks.values():
            network.eval()
        noise = stream(seed, task.name, "probe", "noise")
        for index in torch.randperm(len(images), generator=stream(seed, task.name, "probe", "order")).tolist():
            fakes = networks[generator](torch.randn(1, family.z_dim, generator=noise).to(device))
            if role == generator:
                yield generator_loss(fakes)
            else:
                stage = discriminators.index(role)
                real = multiscale(centre_crop(images[index][None], sizes[-1]).to(device), sizes)[stage]
                yield discriminator_loss(networks[role](real), networks[role](fakes[stage].detach()))

    return Probe(losses)
