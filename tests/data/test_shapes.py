"""Built-in pictures: seeded, quick, unlike each other, and a labelled set that has to be learned."""

import time

import pytest
import torch
from torch import nn

from eftgan.data.augmentation import to_unit
from eftgan.data.shapes import CLASSES, SHAPES, LabelledShapes, ShapeImages
from eftgan.errors import UserError


def test_pictures_follow_the_seed():
    first, again, other = (ShapeImages("discs", count=8, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.images, again.images)
    assert first.digest == again.digest
    assert not torch.equal(first.images, other.images)
    assert first.digest != other.digest


def test_pictures_have_the_interface_of_a_prepared_set():
    images = ShapeImages("checks", count=5, size=38)
    assert len(images) == 5
    assert images.size == 38
    assert images.targets is None
    assert images[2].shape == (3, 38, 38)
    assert images[2].dtype == torch.uint8
    assert torch.equal(torch.stack(images.__getitems__([3, 1])), images.images[[3, 1]])


def test_drawing_is_quick():
    start = time.process_time()
    ShapeImages("triangles", count=2048)
    assert time.process_time() - start < 5  # under one second on an idle core


def test_the_four_kinds_are_told_apart_by_their_nearest_neighbours():
    reference = torch.cat([to_unit(ShapeImages(kind, count=60).images).flatten(1) for kind in SHAPES])
    for index, kind in enumerate(SHAPES):
        fresh = to_unit(ShapeImages(kind, count=20, seed=9).images).flatten(1)
        nearest = torch.cdist(fresh, reference).argmin(1) // 60
        assert (nearest == index).float().mean() > 0.9, kind
        assert fresh.std(0).mean() > 0.15, f"{kind} hardly vary"


def test_an_unknown_kind_is_refused_with_the_choice():
    with pytest.raises(UserError, match="there are: discs"):
        ShapeImages("cubes")


def test_labelled_shapes_have_balanced_classes_and_a_test_set_of_their_own():
    train = LabelledShapes(classes=12, count_per_class=5)
    test = LabelledShapes(classes=12, count_per_class=5, train=False)
    assert len(CLASSES) >= 12
    assert train.labels == list(CLASSES[:12])
    assert torch.bincount(train.targets).tolist() == [5] * 12
    assert not torch.equal(train.images, test.images)
    picture, label = train[7]
    assert picture.shape == (3, 32, 32)
    assert label == 1


def test_colour_alone_does_not_tell_the_class():
    data = LabelledShapes(classes=12, count_per_class=60)
    held = LabelledShapes(classes=12, count_per_class=20, train=False)
    colour, fresh = (to_unit(d.images).mean((2, 3)) for d in (data, held))
    guessed = data.targets[torch.cdist(fresh, colour).argmin(1)]
    assert (guessed == held.targets).float().mean() < 0.25


def test_a_small_network_learns_the_classes_in_seconds():
    torch.manual_seed(0)
    train, test = (LabelledShapes(6, count_per_class=n, train=t) for n, t in ((100, True), (30, False)))
    network = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, 6)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(8):
        for chosen in torch.randperm(len(train)).split(50):
            loss = nn.functional.cross_entropy(network(to_unit(train.images[chosen])), train.targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.eval()
    accuracy = (network(to_unit(test.images)).argmax(1) == test.targets).float().mean()
    assert accuracy > 0.7
