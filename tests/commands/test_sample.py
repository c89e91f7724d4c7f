"""`eftgan sample` beyond single tasks: strength, mixes and ways, and the mistakes that people make with them."""

import shutil

import pytest
from PIL import Image

from eftgan.commands import main
from eftgan.commands.sample import parse_mix
from eftgan.config import apply_override, build, dump, read_yaml
from eftgan.errors import UserError
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.kind import train_gan

from ..conftest import TINY


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    data: dict = {"out": str(tmp_path_factory.mktemp("runs") / "tiny")}
    for word in (*TINY, "training.steps=3", "training.learning_rate=0.01"):
        apply_override(data, word)
    return str(train_gan(build(GanExperiment, data), "test").folder.path)


def drawn(run: str, folder, *words: str) -> bytes:
    out = folder / f"{len(list(folder.iterdir()))}.png"
    main(["sample", run, "--n", "3", *words, "--out", str(out)])
    return Image.open(out).tobytes()


def test_strength_and_mix_lead_from_the_base_to_the_task(run, tmp_path, capsys):
    task = drawn(run, tmp_path, "--task", "checks")
    assert drawn(run, tmp_path, "--task", "checks", "--strength", "1") == task
    assert drawn(run, tmp_path, "--mix", "checks:1.0") == task
    assert drawn(run, tmp_path, "--mix", "2:4,discs:0") == task
    half = drawn(run, tmp_path, "--task", "checks", "--strength", "0.5")
    assert "checks at strength 0.5 after checks, seed 0" in capsys.readouterr().out
    assert drawn(run, tmp_path, "--mix", "checks:1,base:1") == half
    base = drawn(run, tmp_path, "--task", "checks", "--strength", "0")
    assert len({task, half, base}) == 3
    assert drawn(run, tmp_path, "--mix", "checks:0.3,discs:0.7") != drawn(
        run, tmp_path, "--mix", "checks:0.7,discs:0.3"
    )


def test_the_base_is_drawn_by_its_name(run, tmp_path, capsys):
    base = drawn(run, tmp_path, "--task", "base")
    assert "base after checks, seed 0" in capsys.readouterr().out
    assert base == drawn(run, tmp_path, "--mix", "base:1") == drawn(run, tmp_path, "--task", "discs", "--strength", "0")
    assert base == drawn(run, tmp_path, "--task", "base", "--strength", "0.5")
    assert base != drawn(run, tmp_path, "--task", "discs")
    main(["sample", run, "--task", "base", "--n", "2", "--images", str(tmp_path / "images")])
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["base-0-00000.png", "base-0-00001.png"]


def test_a_method_without_a_base_has_none_to_draw(run, tmp_path, capsys):
    other = shutil.copytree(run, tmp_path / "finetune")
    config = other / "config.yaml"
    config.write_text(dump(build(GanExperiment, read_yaml(config) | {"method": "finetune"})))
    with pytest.raises(SystemExit) as ended:
        main(["sample", str(other), "--task", "base", "--out", str(tmp_path / "base.png")])
    assert ended.value.code == 2
    assert "Finetune gives tasks nothing of their own in the generator" in capsys.readouterr().err


def test_a_way_is_a_strip_with_a_row_per_image_or_an_animation(run, tmp_path):
    words = ["sample", run, "--task", "discs", "--n", "2", "--interpolate", "5", "--out"]
    for name in ("way.png", "way.gif", "way.webp"):
        main([*words, str(tmp_path / name)])
    assert Image.open(tmp_path / "way.png").size == (5 * 34 - 2, 2 * 34 - 2)
    for name in ("way.gif", "way.webp"):
        with Image.open(tmp_path / name) as opened:
            assert (opened.size, opened.is_animated) == ((2 * 34 - 2, 32), True)
    with Image.open(tmp_path / "way.webp") as opened:
        first = opened.convert("RGB").crop((0, 0, 32, 32)).tobytes()
    assert Image.open(tmp_path / "way.png").crop((0, 0, 32, 32)).tobytes() == first


def test_a_way_across_tasks_ends_at_the_tasks(run, tmp_path, capsys):
    main(
        ["sample", run, "--across", "discs,checks", "--interpolate", "3", "--n", "2", "--out", str(tmp_path / "a.png")]
    )
    assert "across discs,checks after checks" in capsys.readouterr().out
    strip = Image.open(tmp_path / "a.png")
    assert strip.size == (3 * 34 - 2, 2 * 34 - 2)
    main(["sample", run, "--task", "discs", "--n", "2", "--out", str(tmp_path / "discs.png")])
    assert strip.crop((0, 0, 32, 32)).tobytes() == Image.open(tmp_path / "discs.png").crop((0, 0, 32, 32)).tobytes()
    main(["sample", run, "--across", "all", "--interpolate", "3", "--images", str(tmp_path / "frames")])
    assert sorted(path.name for path in (tmp_path / "frames").iterdir()) == [f"frame-0000{i}.png" for i in range(3)]


def test_without_a_task_a_way_has_a_row_per_task(run, tmp_path):
    main(["sample", run, "--interpolate", "4", "--out", str(tmp_path / "all.png")])
    assert Image.open(tmp_path / "all.png").size == (4 * 34 - 2, 2 * 34 - 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mix", "discs:0.5,dogs:0.5"], "no task 'dogs' in {run}; it has: discs, checks"),
        (["--mix", "discs:half,checks:0.5"], "'discs:half' is not NAME:NUMBER"),
        (["--mix", "discs"], "'discs' is not NAME:NUMBER"),
        (["--mix", "discs:nan"], "'discs:nan' is not NAME:NUMBER"),
        (["--mix", ""], "'' is not NAME:NUMBER"),
        (["--mix", "discs:0.5,checks:-0.7"], "the weights sum up to -0.2; their sum must be above 0"),
        (["--mix", "discs:0"], "the weights sum up to 0"),
        (["--mix", "discs:1", "--task", "discs"], "--task and --mix both say what is drawn"),
        (["--strength", "nan"], "--strength nan: give a number"),
        (["--interpolate", "1"], "--interpolate 1: a way has at least 2 frames"),
        (["--across", "discs,checks"], "--across is a way: say in how many frames"),
        (["--across", "discs", "--interpolate", "3"], "--across discs: a way needs at least two tasks"),
        (["--across", "discs,dogs", "--interpolate", "3"], "no task 'dogs'"),
        (["--out", "x.gif"], "--out x.gif: only a way is an animation; add --interpolate 16, or name it x.png"),
        (["--out", "x.mp4", "--interpolate", "3"], "--out x.mp4: a grid is a PNG picture, a GIF or a WebP"),
    ],
)
def test_mistakes_end_with_code_2_and_one_line(run, words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sample", run, *words])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    assert message.replace("{run}", run) in shown


def test_a_mix_is_read_as_names_and_weights():
    assert parse_mix("birds:0.3, cats:-0.1") == [("birds", 0.3), ("cats", -0.1)]
    with pytest.raises(UserError):
        parse_mix("birds:0.3,,cats:1")
