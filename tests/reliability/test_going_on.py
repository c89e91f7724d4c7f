"""Going on with what is left of a run: without its resume states, without the data of earlier tasks."""

import shutil

import numpy as np
import pytest
import torch

from eftgan.classifier.kind import train_classifier
from eftgan.data.lmdb import write_lmdb
from eftgan.data.shapes import LabelledShapes, ShapeImages
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.reports.results import studies
from eftgan.reports.runs import load_runs
from eftgan.scores import read_scores
from eftgan.training.trainer import Trainer

FURTHER = "tasks+={name: stripes, data: 'shapes:stripes', limit: 24}"


def weights_of(run) -> dict[str, str]:
    files = [run.folder.shared, *sorted((run.folder.path / "tasks").iterdir())]
    return {path.name: file_digest(path) for path in files if path.exists()}


def test_without_states_a_gan_goes_on_from_its_task_files_to_the_same_bits(tiny, capsys):
    whole = train_gan(tiny(FURTHER, out="whole"), "test")
    part = train_gan(tiny(out="part"), "test")
    before = weights_of(part)
    shutil.rmtree(part.folder.path / "state")
    part = train_gan(tiny(FURTHER, out="part"), "test")
    assert "going on from the files of discs, checks" in capsys.readouterr().out
    assert weights_of(part) == weights_of(whole)
    assert before.items() <= weights_of(part).items()


@pytest.mark.parametrize("name", ["eft", pytest.param("fixed", marks=pytest.mark.slow)])
def test_without_states_a_classifier_goes_on_from_its_task_files_to_the_same_bits(tiny_classes, name):
    method = f"method={{name: {name}}}"
    whole = train_classifier(tiny_classes(method, out="whole"), "test")
    part = train_classifier(tiny_classes(method, "sources.0.take=2", out="part"), "test")
    shutil.rmtree(part.folder.path / "state")
    part = train_classifier(tiny_classes(method, out="part"), "test")
    assert weights_of(part) == weights_of(whole)


@pytest.mark.parametrize("method", ["eft", pytest.param("finetune", marks=pytest.mark.slow)])
def test_a_run_that_was_killed_between_its_first_state_and_the_first_file_goes_on_to_the_same_bits(
    tiny, monkeypatch, method
):
    words = (f"method={method}", "training.save_every_steps=0")
    whole = train_gan(tiny(*words, out="whole"), "test")

    def killed(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_write_task", killed)
    with pytest.raises(KeyboardInterrupt):
        train_gan(tiny(*words, out="part"), "test")
    monkeypatch.undo()
    folder = GanRun(tiny(out="part").out).folder
    assert not folder.task_files()
    (state,) = folder.state_files()
    part = train_gan(tiny(*words, out="part"), "test")
    assert weights_of(part) == weights_of(whole)
    assert state.name in {path.name for path in whole.folder.state_files()}


@pytest.mark.parametrize("method", ["{name: eft, discriminator: full}", "{name: mergan}"])
def test_a_method_that_needs_its_state_is_refused_and_leaves_the_finished_tasks_alone(tiny, method):
    word = f"method={method}"
    run = train_gan(tiny(word), "test")
    before = weights_of(run)
    shutil.rmtree(run.folder.path / "state")
    for words in ((word,), (word, FURTHER)):
        with pytest.raises(UserError, match=r"discs, checks are trained, but the resume states .* are gone"):
            train_gan(tiny(*words), "test")
    assert weights_of(run) == before


def test_a_finished_task_is_never_overwritten(tiny):
    run = train_gan(tiny(), "test")
    other = train_gan(tiny("seed=1", out="other"), "test")
    path = run.folder.task_file(1, "checks")
    shutil.copyfile(other.folder.task_file(1, "checks"), path)
    before = file_digest(path)
    for state in run.folder.state_files()[1:]:
        state.unlink()  # the one that is left stands within the second task
    with pytest.raises(UserError, match="finished tasks are not overwritten"):
        train_gan(tiny(), "test")
    assert file_digest(path) == before


def collection(folder, kind: str) -> str:
    images = ShapeImages(kind, count=24, size=38)
    write_lmdb(folder, [(image.numpy(), None) for image in images.images], size=38)
    return str(folder)


@pytest.fixture
def two_collections(tmp_path, monkeypatch):
    """A folder to train in, with two small LMDBs that are named by relative paths."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for kind in ("discs", "checks"):
        collection(tmp_path / "work" / "data" / f"{kind}.lmdb", kind)
    return tmp_path / "work"


FROM_LMDB = "tasks=[{name: discs, data: data/discs.lmdb}, {name: checks, data: data/checks.lmdb}]"
MEASURED = "evaluation={features: random, samples: 8}"


def test_a_further_task_needs_no_data_of_earlier_ones(tiny, two_collections, capsys):
    whole = train_gan(tiny(FROM_LMDB, MEASURED, FURTHER, out="whole"), "test")
    run = train_gan(tiny(FROM_LMDB, MEASURED, out="run"), "test")
    shutil.rmtree(two_collections / "data")
    run = train_gan(tiny(FROM_LMDB, MEASURED, FURTHER, out="run"), "test")
    assert run.trained == ["discs", "checks", "stripes"]
    assert weights_of(run) == weights_of(whole)
    # Unchanged weights: the scores of earlier tasks hold, with nothing to measure against.
    (study,) = studies(load_runs([run.folder.path]))
    (result,) = study.results(study.main)
    values = [result.cell(2, tested) for tested in range(3)]
    assert [value.carried for value in values] == [True, True, False]
    assert [value.mean for value in values[:2]] == [result.cell(tested, tested).mean for tested in range(2)]
    assert "not measured" not in capsys.readouterr().out


def test_what_cannot_be_measured_without_the_data_is_said(tiny, two_collections, capsys):
    run = train_gan(tiny(FROM_LMDB, out="run"), "test")
    shutil.rmtree(two_collections / "data")
    run = train_gan(tiny(FROM_LMDB, MEASURED, FURTHER, out="run"), "test")
    assert "discs: not measured: no LMDB at" in capsys.readouterr().out
    tested = {score.tested_on for score in read_scores(run.folder.scores) if score.metric == "FD-random"}
    assert tested == {"stripes"}


def test_a_method_that_uses_earlier_images_still_asks_for_them(tiny, two_collections):
    train_gan(tiny(FROM_LMDB, "method={name: joint}", out="run"), "test")
    shutil.rmtree(two_collections / "data" / "discs.lmdb")
    with pytest.raises(UserError, match=r"no LMDB at .*discs\.lmdb"):
        train_gan(tiny(FROM_LMDB, "method={name: joint}", FURTHER, out="run"), "test")


def test_a_run_is_continued_from_another_folder_and_a_moved_set_can_be_named(tiny, two_collections, monkeypatch):
    whole = train_gan(tiny(FROM_LMDB, out="whole"), "test")
    one = FROM_LMDB.replace(", {name: checks, data: data/checks.lmdb}", "")
    train_gan(tiny(one, out="run"), "test")
    monkeypatch.chdir(two_collections.parent)
    run = GanRun(two_collections.parent / "run")
    assert len(run.real_images(0)) == 24  # though data/discs.lmdb is not to be found from here
    shutil.move(two_collections / "data", two_collections / "moved")
    moved = FROM_LMDB.replace("data/", f"{two_collections}/moved/")
    run = train_gan(tiny(moved, out="run"), "test")
    assert weights_of(run) == weights_of(whole)


def test_other_images_under_a_half_trained_run_are_noticed(tiny, two_collections):
    run = train_gan(tiny(FROM_LMDB), "test")
    for path in (run.folder.task_file(1, "checks"), *run.folder.state_files()[1:]):
        path.unlink()
    shutil.rmtree(two_collections / "data" / "checks.lmdb")
    collection(two_collections / "data" / "checks.lmdb", "stripes")
    with pytest.raises(UserError, match=r"task checks: .* holds other images than this run was started with"):
        train_gan(tiny(FROM_LMDB), "test")


def labelled(folder, classes: list[int]) -> None:
    for split in ("train", "test"):
        shapes = LabelledShapes(classes, 20, 16, seed=0, train=split == "train")
        pairs = zip(np.asarray(shapes.images), shapes.targets.tolist(), strict=True)
        write_lmdb(folder / f"{split}.lmdb", pairs, size=16, labels=shapes.labels)


def test_a_classifiers_further_task_needs_no_data_of_earlier_ones(tiny_classes, tmp_path, capsys):
    for name, classes in (("first", [0, 1]), ("second", [2, 3])):
        labelled(tmp_path / name, classes)
    one = f"sources=[{{name: first, data: {tmp_path}/first}}]"
    further = f"sources+={{name: second, data: {tmp_path}/second}}"
    whole = train_classifier(tiny_classes(one, further, out="whole"), "test")
    train_classifier(tiny_classes(one, out="run"), "test")
    shutil.rmtree(tmp_path / "first")
    run = train_classifier(tiny_classes(one, further, out="run"), "test")
    assert weights_of(run) == weights_of(whole)
    assert "first: not measured: " in capsys.readouterr().out
    image = run.labelled[1].test.images[0]
    assert torch.is_tensor(image)
    assert run.classify(image, task="first")[0] == "first"
