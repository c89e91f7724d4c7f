"""The commands on real samples, where they lie beside the checkout."""

import pytest
from PIL import Image

from eftgan.data.lmdb import LmdbImages


@pytest.mark.parametrize(
    ("command", "source", "count"),
    [
        ("cats", "raw/imagenet", 180),
        ("cub", "raw/CUB_200_2011", None),
        ("lsun", "raw/lsun/church_outdoor_train_lmdb", 200),
        ("lsun", "raw/lsun/tower_train_lmdb", 200),
        ("folder", "gan64/churches.tar", 2350),
        ("cifar", "cifar10_small.tar", 2000),
        ("svhn", "svhn_small.tar", 2000),
    ],
)
def test_each_command_prepares_checks_and_draws_the_real_samples(prep, shared_data, tmp_path, command, source, count):
    output = tmp_path / "set"
    code, _, err = prep(command, shared_data / source, output, "--size", 32)
    assert code == 0, err
    assert prep("check", output)[0] == 0
    assert prep("info", output)[0] == 0
    labelled = command in ("cifar", "svhn")
    images = LmdbImages(output / "train.lmdb" if labelled else output)
    assert len(images) == (count or len(images))
    assert images.size == (32 if labelled else 38)
    sheet = output / "train.lmdb.png" if labelled else tmp_path / "set.png"
    assert Image.open(sheet).width > 5 * images.size
