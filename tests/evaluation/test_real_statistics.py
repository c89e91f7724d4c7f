import json
from dataclasses import asdict

import pytest
import torch

from eftgan.errors import UserError
from eftgan.evaluation.features import Extractor, load_extractor
from eftgan.evaluation.real_statistics import centre_crop, read_statistics, reference_key, reference_statistics
from eftgan.evaluation.statistics import FeatureStatistics
from eftgan.tensors import write_tensors


class Pictures:
    """Random images, and a count of how often one was asked for."""

    digest = "d1"

    def __init__(self, n: int = 30, size: int = 20):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)
        self.reads = 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads += 1
        return self.images[index]


@pytest.fixture(scope="module")
def extractor():
    return load_extractor("random")


def equal(a, b) -> bool:
    return a.n == b.n and torch.equal(a.mean, b.mean) and torch.equal(a.covariance, b.covariance)


def test_statistics_are_of_centre_crops(extractor):
    data = Pictures()
    found = reference_statistics(data, extractor, 16, progress=False)
    assert torch.equal(found.features, extractor(data.images[..., 2:18, 2:18]))


def test_a_second_call_reads_the_cache_and_gives_the_same(extractor, tmp_path):
    data = Pictures()
    first = reference_statistics(data, extractor, 16, cache=tmp_path, progress=False)
    reads = data.reads
    second = reference_statistics(data, extractor, 16, cache=tmp_path, progress=False)
    assert data.reads == reads
    assert equal(first, second)
    assert torch.equal(first.features, second.features)


def test_the_key_tells_apart_all_that_matters(extractor):
    data, other = Pictures(), Pictures()
    other.digest = "d2"
    keys = [
        reference_key(data, extractor, 16),
        reference_key(other, extractor, 16),
        reference_key(data, extractor, 20),
        reference_key(data, extractor, 16, count=10),
    ]
    assert len({key.digest for key in keys}) == 4
    assert reference_key(data, extractor, 16, count=1000) == keys[0]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_cache_file_is_computed_again(extractor, tmp_path, damage):
    data = Pictures()
    first = reference_statistics(data, extractor, 16, cache=tmp_path, progress=False)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-100] ^= 255
    file.write_bytes({"cut": content[: len(content) // 2], "changed": content, "empty": b""}[damage])
    with pytest.warns(UserWarning, match="damaged"):
        again = reference_statistics(data, extractor, 16, cache=tmp_path, progress=False)
    assert equal(first, again)
    reads = data.reads
    reference_statistics(data, extractor, 16, cache=tmp_path, progress=False)
    assert data.reads == reads  # the file was replaced by a sound one


def test_a_count_spreads_over_the_collection(extractor):
    data = Pictures(30)
    found = reference_statistics(data, extractor, 20, count=10, progress=False)
    assert torch.equal(found.features, extractor(data.images[::3]))


def together(in_threads, count: int, *args, cache) -> FeatureStatistics:
    """What the first of several processes is given; it has the cache."""

    def work(processes):
        mine = {"cache": cache} if processes.is_first else {}
        return reference_statistics(*args, **mine, processes=processes, progress=False)

    return in_threads(count, work)[0]


@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_share_the_work_and_the_statistics_are_those_of_one_to_the_bit(
    extractor, in_threads, tmp_path, count
):
    data, alone = Pictures(201), Pictures(201)
    result = together(in_threads, count, data, extractor, 16, cache=tmp_path / "several")
    expected = reference_statistics(alone, extractor, 16, cache=tmp_path / "one", progress=False)
    assert data.reads == 201
    assert equal(result, expected)
    assert torch.equal(result.features, expected.features)
    several, one = (list((tmp_path / name).iterdir()) for name in ("several", "one"))
    assert [path.read_bytes() for path in several] == [path.read_bytes() for path in one]


def test_the_first_process_calls_the_others_only_where_nothing_is_known(extractor, tmp_path):
    data, calls = Pictures(), []
    for _ in range(2):
        reference_statistics(data, extractor, 16, cache=tmp_path, call_others=lambda: calls.append(1), progress=False)
    assert calls == [1]


@pytest.mark.parametrize("count", [1, 3])
def test_images_themselves_are_kept_and_read_back_where_a_metric_is_measured_on_them(in_threads, tmp_path, count):
    plain = Extractor("lpips", "lpips-vgg16", "w", 0, "none", lambda x: x, torch.device("cpu"))
    data = Pictures(5)
    made = together(in_threads, count, data, plain, 16, cache=tmp_path)
    read = reference_statistics(data, plain, 16, cache=tmp_path, progress=False)
    assert data.reads == 5
    for found in (made, read):
        assert found.n == 5
        assert found.features.dtype == torch.uint8
        assert torch.equal(found.features, data.images[..., 2:18, 2:18])


def test_images_that_can_not_be_used_are_refused(extractor):
    with pytest.raises(UserError, match="20 x 20 can't be cropped to 32 x 32"):
        centre_crop(Pictures()[0], 32)
    with pytest.raises(UserError, match="at least 2 images"):
        reference_statistics(Pictures(1), extractor, 16, progress=False)


class Sorted(Pictures):
    """More images than features are kept of, each of one grey: image i of i / 30."""

    def __init__(self, n: int = 6000):
        super().__init__(2, 2)
        self.images = (torch.arange(n) // 30).to(torch.uint8).expand(3, 2, 2, n).permute(3, 0, 1, 2)


@pytest.fixture(scope="module")
def greys():
    """An extractor whose one feature is the grey of an image."""
    return Extractor("greys", "greys", "w", 1, "none", lambda x: 255 * x[:, :1].mean((2, 3)), torch.device("cpu"))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_kept_features_of_a_large_collection_are_spread_over_it(greys, in_threads, tmp_path, count):
    data = Sorted()
    found = together(in_threads, count, data, greys, 2, cache=tmp_path)
    assert found.n == 6000
    assert found.features.squeeze(1).round().int().tolist() == [(i * 6000 // 5000) // 30 for i in range(5000)]
    whole = FeatureStatistics.from_features(greys(data.images))
    torch.testing.assert_close(found.covariance, whole.covariance)


def test_only_the_keys_of_large_collections_tell_which_features_are_kept(greys, tmp_path):
    """Files of smaller ones hold every feature, whichever version wrote them."""
    small, large = (reference_key(Sorted(n), greys, 2) for n in (5000, 5001))
    assert json.loads(small.text) == asdict(small)
    assert json.loads(large.text) == {**asdict(large), "rows": "spread"}
    path = tmp_path / f"{large.digest}.safetensors"
    with_first_rows = FeatureStatistics.from_features(greys(Sorted(5001).images))
    write_tensors(path, with_first_rows.tensors(), {"key": json.dumps(asdict(large), sort_keys=True)})
    with pytest.warns(UserWarning, match="made for other data"):
        assert read_statistics(path, large) is None
