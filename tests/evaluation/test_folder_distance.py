import numpy as np
import pytest
import torch
from PIL import Image

from eftgan.commands import main
from eftgan.errors import UserError
from eftgan.evaluation import features, folder_distance, statistics
from eftgan.evaluation.features import load_extractor
from eftgan.evaluation.folder_distance import compare_folders, folder_statistics


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
    near = compare_folders(a, b, extractor, progress=False)
    far = compare_folders(a, c, extractor, progress=False)
    for metric in ("FD-random", "KID-random"):
        assert near.values[metric][0] < far.values[metric][0]
    assert far.n == (60, 60)
    (distance, _), (kernel, spread) = far.values.values()
    assert str(far) == (
        f"FD-random {distance:.3f}   KID-random {kernel:.5f} ± {spread:.5f}   N 60 and 60   "
        "(random-conv, bilinear 64, antialiased)"
    )


def test_other_files_are_left_out_and_greyscale_is_read(tmp_path, extractor):
    folder = fill(tmp_path / "a", 3)
    (folder / "notes.txt").write_text("not a picture")
    Image.new("L", (24, 24), 100).save(folder / "grey.png")
    assert folder_statistics(folder, extractor, progress=False).n == 4


def test_the_kept_features_of_many_files_are_spread_over_them(tmp_path, extractor, monkeypatch):
    folder = fill(tmp_path / "a", 7)
    every = folder_statistics(folder, extractor, progress=False).features
    monkeypatch.setattr(statistics, "KEEP_FEATURES", 3)
    assert torch.equal(folder_statistics(folder, extractor, progress=False).features, every[[0, 2, 4]])


def test_mixed_sizes_are_an_error_unless_allowed(tmp_path, extractor):
    folder = fill(fill(tmp_path / "a", 3), 2, size=(30, 20), seed=1)
    with pytest.raises(UserError, match=r"24 x 24, .* is 20 x 30"):
        folder_statistics(folder, extractor, progress=False)
    assert folder_statistics(folder, extractor, mixed_sizes=True, progress=False).n == 5


def test_the_command_offers_what_its_error_advises(tmp_path, capsys):
    mixed = fill(fill(tmp_path / "a", 3), 2, size=(30, 20), seed=1)
    words = ["fid", str(mixed), str(fill(tmp_path / "b", 3)), "--features", "random"]
    with pytest.raises(SystemExit):
        main(words)
    assert "--mixed-sizes" in capsys.readouterr().err
    main([*words, "--mixed-sizes"])
    assert "N 5 and 3   (random-conv, " in capsys.readouterr().out


def test_a_mistyped_folder_is_refused_before_any_work(tmp_path, extractor, monkeypatch, capsys):
    folder, missing = fill(tmp_path / "a", 3), tmp_path / "typo"
    monkeypatch.setattr(folder_distance, "folder_statistics", lambda *args, **kwargs: pytest.fail("ran the network"))
    with pytest.raises(UserError, match="no folder"):
        compare_folders(folder, missing, extractor, progress=False)
    monkeypatch.setattr(features, "load_extractor", lambda *args, **kwargs: pytest.fail("loaded the network"))
    with pytest.raises(SystemExit):
        main(["fid", str(folder), str(missing)])
    assert f"no folder {missing}" in capsys.readouterr().err


def test_bad_folders_are_named(tmp_path, extractor):
    with pytest.raises(UserError, match="no folder"):
        folder_statistics(tmp_path / "missing", extractor, progress=False)
    one = fill(tmp_path / "one", 1)
    with pytest.raises(UserError, match="at least 2 images"):
        folder_statistics(one, extractor, progress=False)
    (one / "broken.png").write_bytes(b"not a png")
    with pytest.raises(UserError, match=r"broken\.png can't be read"):
        folder_statistics(one, extractor, progress=False)
