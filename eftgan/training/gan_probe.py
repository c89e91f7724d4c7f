"""Per-sample losses of a finished GAN task, each network's own: what a Fisher is made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from eftgan.data.streams import stream
from eftgan.data.transforms import centre_crop, multiscale
from eftgan.methods import Probe
from eftgan.training.losses import discriminator_loss


def gan_probe(
    networks: Mapping[str, nn.Module],
    images: Dataset,
    task: str,
    seed: int,
    sizes: Sequence[int],
    z_dim: int,
    generator_loss: Callable[[list[Tensor]], Tensor],
) -> Probe:
    """In eval mode: the generator's loss on one noise, a discriminator's on one noise and one real image."""
    generator, *discriminators = networks
    device = next(networks[generator].parameters()).device

    def losses(role: str) -> Iterator[Tensor]:
        for network in networks.values():
            network.eval()
        noise = stream(seed, task, "probe", "noise")
        for index in torch.randperm(len(images), generator=stream(seed, task, "probe", "order")).tolist():
            fakes = networks[generator](torch.randn(1, z_dim, generator=noise).to(device))
            if role == generator:
                yield generator_loss(fakes)
            else:
                stage = discriminators.index(role)
                real = multiscale(_image(index).to(device), sizes)[stage]
                yield discriminator_loss(networks[role](real), networks[role](fakes[stage].detach()))

    def _image(index: int) -> Tensor:
        item = images[index]
        return centre_crop((item[0] if isinstance(item, tuple) else item)[None], sizes[-1])

    return Probe(losses)
