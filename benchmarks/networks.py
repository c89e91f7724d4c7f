"""The networks on both sides: ours, the same without adapters, and the authors' adapter as it stands in the paper."""

import copy

import torch
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters
from eftgan.adapters.merge import fast_layout, fold_batchnorms
from eftgan.models.classifiers import build_classifier
from eftgan.models.gans.stackgan import Discriminator, Generator, StackGan

STACKGAN = StackGan(stages=1, base_size=64, ngf=64, ndf=64)


class TwoConvolutions(nn.Module):
    """The authors' adapter: a 3x3 and a 1x1 group convolution, run one after the other and added."""

    def __init__(self, channels: int, a: int, b: int) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(channels, channels, 3, padding=1, groups=channels // a)
        self.depth = nn.Conv2d(channels, channels, 1, groups=channels // b)

    def forward(self, x: Tensor) -> Tensor:
        return self.spatial(x) + self.depth(x)


def resnet(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build_classifier("resnet18", 10)


def generator(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return Generator(STACKGAN)


def discriminator(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return Discriminator(64, STACKGAN.ndf)


def folded(network: nn.Module) -> nn.Module:
    """A network without adapters, its BatchNorms folded and its layout as in merged ones."""
    plain = copy.deepcopy(network).eval()
    fold_batchnorms(plain)
    return fast_layout(plain)


def adapted(network: nn.Module, a: int, b: int, tasks: int, heads: tuple[str, ...] = ()) -> nn.Module:
    """A network with banks and tasks t1, t2, ... whose transforms are not the identity."""
    insert_adapters(network, AdapterConfig(a, b, heads=heads))
    for number in range(1, tasks + 1):
        add_task(network, f"t{number}", "random")
    return network
