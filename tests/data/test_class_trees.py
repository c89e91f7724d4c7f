"""Labelled images in plain class folders: test images are held out, by name, and a tree's own are respected."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eftgan.data.held_out import hold_out
from eftgan.data.labelled import open_labelled
from eftgan.errors import UserError

CLASSES = ("ant", "bee", "train")  # a class may be called as a part is


def png(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), colour, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def files(under: str = "", count: int = 20) -> dict[str, bytes]:
    return {f"{under}{name}/{n}.png": png(50 * c + n) for c, name in enumerate(CLASSES) for n in range(count)}


def write(place: Path, form: str, contents: dict[str, bytes]) -> str:
    path = place / f"insects{'' if form == 'folder' else '.' + form}"
    for name, content in contents.items() if form == "folder" else ():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
    elif form.startswith("t"):
        with tarfile.open(path, "w:gz" if form == "tar.gz" else "w") as archive:
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return str(path)


def colours(images) -> set[tuple[int, int]]:
    return {(int(image[0, 0, 0]), target) for image, target in images}


@pytest.mark.parametrize("form", ["folder", "zip", "tar", "tar.gz"])
def test_a_share_of_every_class_is_held_out_and_is_the_same_in_every_form(tmp_path, capsys, form):
    data = write(tmp_path, form, files("" if form == "folder" else "insects/"))
    train, test, classes = open_labelled(data, size=8)
    assert classes == list(CLASSES)
    assert len(train) + len(test) == 60
    assert not colours(train) & colours(test)
    plain = hold_out([(f"{name}/{n}.png", c) for c, name in enumerate(CLASSES) for n in range(20)], CLASSES, 0.2)
    assert colours(test) == {(50 * c + int(Path(name).stem), c) for name, c in plain[1]}
    assert [sum(target == c for _, target in plain[1]) for c in range(3)] == [4, 4, 4]
    said = capsys.readouterr().out
    assert f"{data}: no test/ beside its 3 classes, so 20% of every class are held out: {len(train)} images" in said


def test_the_share_can_be_set(tmp_path):
    data = write(tmp_path, "folder", files())
    assert [len(open_labelled(data, size=8, test_share=share)[1]) for share in (0.1, 0.25, 0.6)] == [6, 15, 36]


def test_names_of_any_order_are_held_out_evenly():
    items = [(f"ant/{n:03d}.png", 0) for n in range(200)]
    chosen = [int(name[4:7]) for name, _ in hold_out(items, ["ant"], 0.2)[1]]
    assert len(chosen) == 40
    assert all(min(chosen) < bound < max(chosen) for bound in (20, 180))
    assert 60 < sum(chosen) / len(chosen) < 140


def test_every_class_has_training_and_test_images_however_few_there_are():
    for share in (0.001, 0.999):
        train, test = hold_out([("ant/1", 0), ("ant/2", 0), ("bee/1", 1), ("bee/2", 1)], ["ant", "bee"], share)
        assert [target for _, target in train] == [target for _, target in test] == [0, 1]


def test_a_train_folder_alone_is_shared_out_too(tmp_path):
    train, test, classes = open_labelled(write(tmp_path, "folder", files("train/")), size=8)
    assert classes == list(CLASSES)
    assert len(train) + len(test) == 60


def test_test_images_of_its_own_are_respected(tmp_path, capsys):
    contents = files("train/", 4) | files("val/", 2)
    data = write(tmp_path, "zip", contents)
    train, test, _ = open_labelled(data, size=8)
    assert (len(train), len(test)) == (12, 6)
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match=r"test_share has no effect, it has test images of its own in val/"):
        open_labelled(data, size=8, test_share=0.3)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ant/1.png", "bee/1.png", "bee/2.png"], "class 'ant' has one image; to hold out test images, every class"),
        (["1.png", "2.png"], "lies in no class folder; expected <class>/<image>"),
        (["notes.txt"], "no images under"),
    ],
)
def test_what_has_no_classes_is_refused(tmp_path, names, message):
    data = write(tmp_path, "folder", {name: png(0) for name in names})
    with pytest.raises(UserError, match=message):
        open_labelled(data, size=8)


def test_data_prep_makes_the_same_parts(tmp_path):
    from data_prep.__main__ import main

    data = write(tmp_path, "tar.gz", files())
    words = ["--size", "32", "--exact", "--held-out", "0.2", "--workers", "0"]
    main(["folder", data, str(tmp_path / "set"), *words])
    prepared, plain = open_labelled(str(tmp_path / "set"), size=32), open_labelled(data, size=32)
    assert [colours(part) for part in prepared[:2]] == [colours(part) for part in plain[:2]]
    with pytest.raises(SystemExit):
        main(["folder", data, str(tmp_path / "other"), "--held-out", "2"])
