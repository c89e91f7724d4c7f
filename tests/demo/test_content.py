"""What the page shows: which runs, which pictures, which words. None of it needs Gradio or a browser."""

import io
import re
import shlex
from pathlib import Path

import pytest
import torch
from PIL import Image

from eftgan.classifier.run import Answer
from eftgan.commands import main
from eftgan.data.images import fit_square, to_chw
from eftgan.demo import markup
from eftgan.demo.examiner import Examiner, read_image
from eftgan.demo.history import history, real_images
from eftgan.demo.requests import BASE_CHOICE, Still, Way, command_words, order
from eftgan.demo.runs import facts, open_runs
from eftgan.demo.studio import Order, Studio
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.gan.latent import of_task
from eftgan.kinds import open_run


def pixels(content: bytes) -> bytes:
    return Image.open(io.BytesIO(content)).tobytes()


@pytest.fixture(scope="module")
def studio(gan) -> Studio:
    return Studio(open_run(gan, "gan"))


def test_a_folder_is_one_run_or_those_below_it_without_first_tasks(gan, comparison, tmp_path):
    assert list(open_runs(gan)) == ["EFT"]
    first = comparison / "first-seed0"
    first.mkdir()
    (first / "config.yaml").write_bytes((gan / "config.yaml").read_bytes())
    try:
        assert list(open_runs(comparison)) == ["EFT", "Finetune"]
    finally:
        (first / "config.yaml").unlink()
        first.rmdir()
    with pytest.raises(UserError, match="and no trained ones in the folders below"):
        open_runs(tmp_path)


def test_runs_of_one_method_are_told_apart_and_kinds_are_not_mixed(gan, classes, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(gan)
    assert list(open_runs(tmp_path)) == ["EFT (a)", "EFT (b)"]
    (tmp_path / "c").symlink_to(classes)
    with pytest.raises(UserError, match=r"runs of several kinds \(classifier, gan\)"):
        open_runs(tmp_path)


def test_the_facts_say_what_the_run_is(gan):
    about = facts(open_run(gan))
    assert (about["Method"], about["Tasks"]) == ("EFT", "discs, checks")
    assert re.fullmatch(r"\d+\.\d\d% per task", about["Growth"])
    assert "StackGAN" in about["Network"]


def test_the_page_draws_what_the_command_that_it_shows_draws(studio, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = order(8, 3, 1.5)
    for what in (Still("checks"), Still("discs", "checks", 0.25), Still("checks", strength=0.5)):
        drawn = studio.grid(what.subject(), wanted)
        words = shlex.split(" ".join(command_words(studio.run.folder.path, what, wanted)))
        main([*words[1:], "--images", "single"])
        grid = Image.open(io.BytesIO(drawn))
        name = "mix" if what.is_mix else what.task
        for index in range(8):
            left, top = index % 4 * 34, index // 4 * 34
            single = Image.open(f"single/{name}-3-{index:05d}.png")
            assert grid.crop((left, top, left + 32, top + 32)).tobytes() == single.tobytes()


def test_a_way_is_an_animation_and_a_strip_and_can_be_typed(studio, tmp_path):
    for way in (Way("discs"), Way("discs", "checks"), Way("discs", BASE_CHOICE)):
        animation, strip = studio.way(way.subject(), order(2, 0), 3)
        assert Image.open(io.BytesIO(strip)).size == (3 * 34 - 2, 2 * 34 - 2)
        with Image.open(io.BytesIO(animation)) as opened:
            assert opened.n_frames == 4
        words = shlex.split(" ".join(command_words(studio.run.folder.path, way, order(2, 0), 3)))
        main([*words[1:-1], str(tmp_path / "way.webp")])
        assert (tmp_path / "way.webp").read_bytes() == animation


def test_a_kept_task_stays_and_a_forgotten_one_changes(comparison):
    runs = open_runs(comparison)
    kept, forgotten = (history(Studio(runs[label]), "discs", Order(4, 0)) for label in ("EFT", "Finetune"))
    assert [figure.says for figure in kept] == ["just learned", "after checks, the same to the bit"]
    assert kept[0].content == kept[1].content
    assert [figure.says for figure in forgotten] == ["just learned", "after checks"]
    assert pixels(forgotten[0].content) != pixels(forgotten[1].content)
    studios = {label: Studio(run) for label, run in runs.items()}
    assert list(real_images(studios, "discs")) == ["Real images"]


def test_the_page_writes_nothing_into_a_run_so_that_ending_it_anywhere_loses_nothing(comparison, classes):
    def everything() -> dict[Path, str]:
        files = [path for run in (comparison, classes) for path in run.rglob("*") if path.is_file()]
        return {path: f"{path.stat().st_mtime_ns} {file_digest(path)}" for path in files}

    before = everything()
    for run in open_runs(comparison).values():
        studio = Studio(run)
        studio.grid(Still("checks").subject(), order(2, 0))
        studio.way(Way("discs").subject(), order(1, 0), 2)
        history(studio, "discs", Order(2, 0))
        real_images({"run": studio}, "discs")
        facts(run)
    Examiner(open_run(classes, "classifier")).ask(Image.new("RGB", (16, 16)))
    assert everything() == before


def test_where_a_task_file_is_gone_the_row_is_left_out(comparison):
    studio = Studio(open_runs(comparison)["Finetune"])
    path = studio.run.folder.task_file(0, "discs")
    moved = path.rename(path.with_suffix(".moved"))
    try:
        assert [figure.says for figure in history(studio, "discs", Order(2, 0))] == ["after checks"]
    finally:
        moved.rename(path)


def test_only_tasks_with_something_of_their_own_are_mixable(comparison):
    runs = open_runs(comparison)
    assert {label: Studio(run).mixable for label, run in runs.items()} == {"EFT": True, "Finetune": False}


def test_pictures_are_inside_the_page_and_names_cannot_break_it(studio):
    figure = markup.Figure(studio.grid(of_task("discs"), Order(1, 0)), "png", 'a "disc" <1>')
    assert markup.picture(figure).count('src="data:image/png;base64,') == 1
    assert 'alt="a &quot;disc&quot; &lt;1&gt;"' in markup.picture(figure)
    assert "<script>" not in markup.header("<script>", "<script>", {"<script>": "<script>"})


def test_numbers_of_the_page_become_orders():
    assert order(4.0, None) == Order(4, 0, None)
    assert order(0, -7, 1.5) == Order(1, 7, 1.5)


def test_a_classifier_says_the_task_the_classes_and_how_sure_each_task_is(classes):
    examiner = Examiner(open_run(classes, "classifier"))
    image, truth = examiner.test_image()
    assert truth.startswith("a test image of task shapes-")
    answers, found = examiner.ask(image)
    assert [answer.task for answer in answers] == examiner.run.trained
    assert found == max(range(3), key=lambda i: answers[i].certainty)
    square = torch.from_numpy(to_chw(fit_square(image, 16)))
    assert examiner.run.classify(square) == (answers[found].task, answers[found].ranked)
    for answer in answers:
        assert 0 < answer.certainty <= 1
        assert sum(share for _, share in answer.ranked) == pytest.approx(1, abs=1e-5)
    shown = markup.verdict(answers, found)
    assert f"<strong>{answers[found].ranked[0][0]}</strong>" in shown
    assert all(answer.task in shown for answer in answers)


def test_certainty_is_one_over_the_number_of_classes_where_nothing_is_known():
    shown = markup.verdict([Answer("a", 0.5, [("x", 0.5), ("y", 0.5)]), Answer("b", 1.0, [("z", 1.0)])], 1)
    assert shown.count("--share:0.5000") == 1  # the classes of the other task are not shown
    assert shown.count("--share:1.0000") == 2


def test_what_is_not_an_image_is_refused(tmp_path):
    (tmp_path / "x.png").write_bytes(b"not an image")
    with pytest.raises(UserError, match="this cannot be read as an image"):
        read_image(str(tmp_path / "x.png"))
