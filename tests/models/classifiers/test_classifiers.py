"""Classifier networks: published sizes, shapes of every stage, one head, and the registry of names."""

import pytest
import torch
from torch import fx, nn

from eftgan.errors import UserError
from eftgan.models.classifiers import CLASSIFIERS, build_classifier, classifier_names, head_name

IMAGE_SIZE = {"vgg16_tiny": 64, "alexnet": 224}  # the others take 32


def images(name: str, batch: int = 2) -> torch.Tensor:
    size = IMAGE_SIZE.get(name, 32)
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "classes", "total"),
    [
        ("resnet18", 10, 11_173_962),
        ("resnet18_third", 5, 1_093_945),
        ("resnet32", 10, 466_906),
        ("vgg16_bn", 10, 14_728_266),
        ("vgg16_tiny", 20, 7_681_620),
        ("alexnet", 1000, 61_100_840),
        ("lenet_apd", 10, 2_987_870 + 5_010),
    ],
)
def test_parameters(name, classes, total):
    with torch.device("meta"):
        network = CLASSIFIERS[name](classes)
    assert sum(p.numel() for p in network.parameters()) == total


@pytest.mark.parametrize(
    ("name", "convolutions", "relus"),
    [
        ("resnet18", 20, 17),
        ("resnet32", 33, 31),
        ("vgg16_bn", 13, 13),
        ("vgg16_tiny", 10, 10),
        ("alexnet", 5, 7),
        ("lenet_apd", 2, 4),
    ],
)
def test_every_layer_is_a_module_of_its_own(name, convolutions, relus):
    with torch.device("meta"):
        modules = list(CLASSIFIERS[name](10).modules())
    assert sum(isinstance(m, nn.Conv2d) for m in modules) == convolutions
    assert sum(isinstance(m, nn.ReLU) for m in modules) == relus


@pytest.mark.parametrize("name", CLASSIFIERS)
@torch.no_grad()
def test_logits_are_the_head_of_the_features_and_trace(name):
    network = build_classifier(name, 3).eval()
    x = images(name)
    logits = network(x)
    assert logits.shape == (2, 3)
    assert network.features(x).shape == (2, network.head.in_features)
    assert torch.equal(network.head(network.features(x)), logits)
    assert torch.equal(fx.symbolic_trace(network)(x), logits)
    assert head_name(network) == "head"


@pytest.mark.parametrize(
    ("name", "part", "shapes"),
    [
        ("resnet18_third", "stages", [(20, 32), (40, 16), (80, 8), (160, 4)]),
        ("resnet32", "stages", [(16, 32), (32, 16), (64, 8)]),
        ("vgg16_bn", "blocks", [(64, 16), (128, 8), (256, 4), (512, 2), (512, 1)]),
        ("vgg16_tiny", "blocks", [(64, 32), (128, 16), (256, 8), (512, 4)]),
    ],
)
@torch.no_grad()
def test_width_and_size_of_every_stage(name, part, shapes):
    network = build_classifier(name, 3).eval()
    x = network.stem(images(name, 1)) if hasattr(network, "stem") else images(name, 1)
    seen = []
    for stage in getattr(network, part):
        x = stage(x)
        seen.append(tuple(x.shape[1:3]))
    assert seen == shapes


def test_lenet_pools_to_8x8():
    network = build_classifier("lenet_apd", 3)
    assert network.convolutions(images("lenet_apd")).shape == (2, 50, 8, 8)


def test_gradients_reach_every_parameter():
    network = build_classifier("resnet32", 3)
    network(images("resnet32")).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_torchvision_networks_by_name():
    with torch.device("meta"):
        network = build_classifier("torchvision:resnet50", 7)
        transformer = build_classifier("torchvision:vit_b_16", 7)
    assert head_name(network) == "fc"
    assert network.fc.out_features == 7
    assert head_name(transformer) == "heads.head"


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("resnet-18", "resnet18"), ("torchvision:resnet5", "torchvision:resnet50")]
)
def test_a_wrong_name_is_answered_with_the_nearest(wrong, nearest):
    with pytest.raises(UserError, match=f"no network '{wrong}'; did you mean '{nearest}'"):
        build_classifier(wrong, 10)


def test_networks_without_a_single_linear_output_are_not_offered():
    assert not {"torchvision:squeezenet1_0", "torchvision:googlenet"} & set(classifier_names())
    with pytest.raises(UserError, match="no linear output layer"):
        head_name(nn.Sequential(nn.Conv2d(3, 3, 1)))
