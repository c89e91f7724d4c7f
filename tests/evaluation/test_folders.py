import numpy as np
import pytest
import torch
from PIL import Image

from eftgan.errors import UserError
from eftgan.evaluation import fid
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.folders import compare_folders, folder_statistics


@pytest.fixture(scope="module")
def extractor():
    return load_extractor("random")


def fill(folder, n: int = 60, *, size=(24, 24), tint: int = 0, seed: int = 0, suffix: str = "png"):
    generator = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for i in range(n):
        pixels = generator.integers(0, 150, (*size, 3), dtype=np.uint8)
        pixels[..., 0] += np.uint8(tint)
        Image.fromarray(pixels).save(folder / f"{seed}-{i:03d}.{suffix}")
    return folder


def test_alike_folders_are_nearer_than_different_ones(tmp_path, extractor):
    a, b, c = (
        fill(tmp_path / "a"),
        fill(tmp_path / "b", seed=1, suffix="JPEG"),
        fill(tmp_path / "c", tint=100),
    )
    near = compare_folders(a, b, extractor, progress=False, subsets=10)
    far = compare_folders(a, c, extractor, progress=False, subsets=10)
    assert near.distance < far.distance
    assert near.kernel_mean < far.kernel_mean
    assert far.n == (60, 60)
    assert "FD-random" in str(far)
    assert "FID" not in str(far)


def test_other_files_are_left_out_and_greyscale_is_read(tmp_path, extractor):
    folder = fill(tmp_path / "a", 3)
    (folder / "notes.txt").write_text("not a picture")
    Image.new("L", (24, 24), 100).save(folder / "grey.png")
    assert folder_statistics(folder, extractor, progress=False).n == 4


def test_the_kept_features_of_many_files_are_spread_over_them(tmp_path, extractor, monkeypatch):
    folder = fill(tmp_path / "a", 7)
    every = folder_statistics(folder, extractor, progress=False).features
    monkeypatch.setattr(fid, "KEEP_FEATURES", 3)
    assert torch.equal(folder_statistics(folder, extractor, progress=False).features, every[[0, 2, 4]])


def test_mixed_sizes_are_an_error_unless_allowed(tmp_path, extractor):
    folder = fill(fill(tmp_path / "a", 3), 2, size=(30, 20), seed=1)
    with pytest.raises(UserError, match=r"24 x 24, .* is 20 x 30"):
        folder_statistics(folder, extractor, progress=False)
    assert folder_statistics(folder, extractor, mixed_sizes=True, progress=False).n == 5


def test_bad_folders_are_named(tmp_path, extractor):
    with pytest.raises(UserError, match="no folder"):
        folder_statistics(tmp_path / "missing", extractor, progress=False)
    one = fill(tmp_path / "one", 1)
    with pytest.raises(UserError, match="at least 2 images"):
        folder_statistics(one, extractor, progress=False)
    (one / "broken.png").write_bytes(b"not a png")
    with pytest.raises(UserError, match=r"broken\.png can't be read"):
        folder_statistics(one, extractor, progress=False)
