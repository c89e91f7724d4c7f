"""Small raw data in every layout that data_prep reads, and a way to call it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # this folder bears the package's name and would be taken for it


@pytest.fixture
def prep(capsys):
    """Run a data_prep command in this process; gives (exit code, stdout, stderr)."""
    from data_prep.__main__ import main

    def call(*arguments):
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def picture():
    """Write a file of smooth random colours; gives its path."""

    def save(path, size=(90, 60), seed=0, **options):
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(size, Image.Resampling.BILINEAR).save(path, **options)
        return path

    return save


@pytest.fixture
def shared_data():
    """The folder of real samples beside the checkout; the test is skipped where it is missing."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no sample data beside the checkout")
    return folder
