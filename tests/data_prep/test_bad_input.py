"""Odd images are converted, broken ones counted, mistakes refused with a remedy and nothing half-made."""

import io
import os
import tarfile
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from eftgan.data.images import decode_rgb, fit_square
from eftgan.data.lmdb import LmdbImages

ROOT = Path(__file__).parents[2]


def saved(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixel(content, place=(0, 0)):
    image = decode_rgb(content)
    assert image.mode == "RGB"
    return image.getpixel(place)


def test_grey_cmyk_and_16_bit_images_keep_their_colours():
    assert pixel(saved(Image.new("L", (8, 8), 77))) == (77, 77, 77)
    red = Image.new("RGB", (16, 16), (200, 30, 40)).convert("CMYK")
    assert np.abs(np.subtract(pixel(saved(red, "JPEG")), (200, 30, 40))).max() < 12
    deep = Image.fromarray(np.full((8, 8), 77 * 256 + 5, dtype=np.uint16))
    assert pixel(saved(deep)) == (77, 77, 77)
    assert pixel(saved(Image.new("1", (8, 8), 1))) == (255, 255, 255)


def test_what_is_transparent_becomes_white():
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    palette.putpixel((3, 3), 0)
    content = saved(palette, transparency=0)
    assert pixel(content) == (10, 200, 30)
    assert pixel(content, (3, 3)) == (255, 255, 255)
    half = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert pixel(saved(half)) == (255, 255, 255)
    assert pixel(saved(Image.new("LA", (8, 8), (50, 255)))) == (50, 50, 50)


def test_exif_rotation_is_applied():
    image = Image.new("RGB", (20, 10), "black")
    image.paste("white", (0, 0, 20, 5))  # the upper half
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise: the upper half comes to the right
    turned = decode_rgb(saved(image, "JPEG", exif=exif, quality=95))
    assert turned.size == (10, 20)
    assert turned.getpixel((9, 10))[0] > 200
    assert turned.getpixel((0, 10))[0] < 50


def test_floating_point_pixels_are_refused():
    with pytest.raises(ValueError, match="floating-point"):
        decode_rgb(saved(Image.new("F", (4, 4), 0.5), "TIFF"))


def test_fitting_takes_the_centre_square():
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, 20:60] = 255
    fitted = np.asarray(fit_square(Image.fromarray(pixels), 20))
    assert fitted[:, 1:-1].min() == 255
    assert fitted.min() > 200  # the outermost columns are filtered across the crop's edge
    assert fit_square(Image.fromarray(pixels), 76).size == (76, 76)


@pytest.fixture
def folder_with_two_broken(picture, tmp_path):
    for number in range(8):
        picture(tmp_path / f"raw/{number}.jpg", seed=number)
    (tmp_path / "raw/text.jpg").write_text("I am not an image")
    whole = picture(tmp_path / "raw/truncated.jpg", size=(200, 200)).read_bytes()
    (tmp_path / "raw/truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "raw/.hidden.jpg").write_text("ignored")
    (tmp_path / "raw/readme.txt").write_text("ignored")
    return tmp_path / "raw"


def test_broken_images_are_skipped_counted_and_listed(prep, folder_with_two_broken, tmp_path):
    arguments = ("folder", folder_with_two_broken, tmp_path / "x.lmdb", "--size", 32)
    code, _, err = prep(*arguments, "--max-broken", 20)
    assert code == 0
    assert "skipped 2 unreadable images" in err
    assert "text.jpg" in err
    assert "truncated.jpg" in err
    assert len(LmdbImages(tmp_path / "x.lmdb")) == 8


def test_too_many_broken_images_are_an_error_and_leave_nothing(prep, folder_with_two_broken, tmp_path):
    code, _, err = prep("folder", folder_with_two_broken, tmp_path / "out/x.lmdb", "--size", 32)
    assert code == 2
    assert "2 of 10 images are unreadable" in err
    assert "text.jpg" in err
    assert "--max-broken" in err
    assert list((tmp_path / "out").iterdir()) == []


def test_the_result_does_not_depend_on_the_number_of_workers(prep, folder_with_two_broken, tmp_path):
    content = []
    for workers in (0, 1, 3):
        output = tmp_path / f"w{workers}"
        options = ("--size", 32, "--max-broken", 50, "--workers", workers)
        prep("folder", folder_with_two_broken, output, *options)
        content.append((output / "data.mdb").read_bytes())
    assert content[0] == content[1] == content[2]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["folder", "nowhere"], "no folder, tar or zip at"),
        (["cats", "nowhere"], "no folder at"),
        (["cub", "nowhere"], "no folder, tar or zip at"),
        (["lsun", "nowhere"], "no LMDB at"),
        (["folder", "empty"], "no images in"),
        (["cats", "empty"], "has none of the synsets n02123045"),
        (["cub", "empty"], "has no images.txt"),
        (["lsun", "empty"], "no LMDB at"),
        (["cifar", "empty"], "has no train/"),
        (["svhn", "empty"], "has no train/"),
        (["tiny", "empty"], "has no val/val_annotations.txt"),
        (["folder", "flat", "--labels"], "lies in no class folder"),
        (["folder", "flat", "--splits", "train", "test"], "has no train/"),
        (["folder", "flat", "--size", "48"], "not a power of two from 32 to 256"),
        (["folder", "flat", "--size", "512"], "not a power of two from 32 to 256"),
        (["folder", "flat", "--limit", "0"], "--limit 0"),
        (["folder", "flat", "--max-broken", "200"], "--max-broken 200"),
        (["folder", "flat", "--workers", "-1"], "--workers -1"),
        (["folder", "flat/0.jpg"], "not a folder, a .tar, .tar.gz or .zip"),
        (["folder", "bad.zip"], "not a whole zip file"),
        (["folder", "bad.tar"], "cannot be read as a tar"),
        (["folder", "bad.tar.gz"], "cannot be read as a tar"),
        (["lsun", "foreign"], "without __meta__"),
        (["check", "foreign"], "without __meta__"),
        (["info", "cut"], "is cut short"),
        (["check", "cut"], "is cut short"),
        (["check", "nowhere"], "no LMDB at"),
    ],
)
def test_mistakes_are_one_message_with_exit_code_2(prep, picture, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    picture(tmp_path / "flat/0.jpg")
    (tmp_path / "bad.zip").write_text("x")
    (tmp_path / "bad.tar").write_text("x" * 2000)
    (tmp_path / "bad.tar.gz").write_bytes(b"\x1f\x8b" + bytes(2000))
    with lmdb.open(str(tmp_path / "foreign"), lock=False) as store, store.begin(write=True) as transaction:
        transaction.put(b"k", b"v")
    cut_set(tmp_path / "cut")
    name, source, *options = command
    output = [] if name in ("check", "info") else ["out/x.lmdb"]
    code, out, err = prep(name, source, *output, *options)
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert source.split("/")[0] in err or source in ("flat",)
    assert "Traceback" not in err + out
    assert not (tmp_path / "out/x.lmdb").exists()


def cut_set(folder):
    folder.mkdir()
    with lmdb.open(str(folder), lock=False) as store, store.begin(write=True) as transaction:
        for key in range(50):
            transaction.put(b"%d" % key, b"x" * 5000)
    data = folder / "data.mdb"
    data.write_bytes(data.read_bytes()[:50_000])


def test_an_existing_set_is_refused_before_any_work(prep, picture, tmp_path):
    picture(tmp_path / "raw/0.jpg")
    arguments = ("folder", tmp_path / "raw", tmp_path / "x.lmdb", "--workers", 0)
    assert prep(*arguments)[0] == 0
    code, _, err = prep(*arguments)
    assert code == 2
    assert "--overwrite" in err
    picture(tmp_path / "raw/1.jpg", seed=1)
    assert prep(*arguments, "--overwrite")[0] == 0
    assert len(LmdbImages(tmp_path / "x.lmdb")) == 2


def test_a_damaged_tar_is_refused_by_name(prep, picture, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for number in range(3):
            archive.add(picture(tmp_path / f"{number}.jpg", size=(400, 400), seed=number), f"{number}.jpg")
    whole = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole[: whole.rindex(b"ustar") + 2000])
    code, _, err = prep("folder", tmp_path / "x.tar", tmp_path / "x.lmdb", "--workers", 0)
    assert code == 2
    assert f"{tmp_path / 'x.tar'} cannot be read" in err
    assert "fetch it again" in err


@pytest.mark.parametrize("workers", [0, 1])
def test_pipes_and_links_out_of_the_files_are_unreadable_images_and_never_waited_for(prep, picture, tmp_path, workers):
    for number in range(3):
        picture(tmp_path / f"raw/{number}.jpg", seed=number)
    os.mkfifo(tmp_path / "raw/pipe.jpg")
    (tmp_path / "raw/clock.jpg").symlink_to("/proc/uptime")
    (tmp_path / "raw/system").symlink_to("/proc")
    options = ("--size", 32, "--max-broken", 50, "--workers", workers)
    code, _, err = prep("folder", tmp_path / "raw", tmp_path / "x.lmdb", *options)
    assert code == 0
    assert "skipped 2 unreadable images" in err
    assert "pipe.jpg: ValueError: it is empty, or not a file" in err
    assert len(LmdbImages(tmp_path / "x.lmdb")) == 3


def test_help_and_config_name_the_same_folder():
    from data_prep import tiny

    example = next(line for line in (tiny.__doc__ or "").splitlines() if line.startswith("Example"))
    assert f"data: {example.split()[-1]}}}" in (ROOT / "configs/classifier/tiny_imagenet.yaml").read_text()
