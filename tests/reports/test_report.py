import csv
import html
import itertools
import json
import math
import re
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from eftgan.errors import UserError
from eftgan.reports import write_report
from eftgan.reports.figures import Line, line_chart
from eftgan.scores import Score, append_scores, read_scores

from .page import report


def test_the_page_and_the_files_beside_it_are_written(make_run, tmp_path):
    files = write_report([make_run(tmp_path / "run")], tmp_path / "out" / "report.html")
    assert [f.name for f in files] == ["report.html", "report.md", "table.tex", "scores.csv", "curve-FID.svg"]
    assert all(file.stat().st_size > 100 for file in files)


def test_a_curve_is_a_picture_of_its_own(make_run, tmp_path):
    runs = [make_run(tmp_path / name, name) for name in ("finetune", "eft")]
    *_, curve = write_report(runs, tmp_path / "out" / "report.html")
    root = ElementTree.fromstring(curve.read_text())
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if "name" in text.get("class")]
    assert names == ["Finetune", "EFT"]
    assert "--s0:" in root.find("{http://www.w3.org/2000/svg}style").text


def test_the_table_has_the_papers_layout_and_values(make_run, paper, tmp_path):
    page = report([make_run(tmp_path / "f", "finetune"), make_run(tmp_path / "e", "eft")], tmp_path)
    groups, columns, finetune, eft = page.table("FID of every")
    assert groups == ["", "cats", "birds", "churches", "towers", "Final"]
    assert columns == ["Task t", *["1", "2", "3", "4"] * 4, "average"]
    for row, method, final in ((finetune, "finetune", "101.2"), (eft, "eft", "33.1")):
        shown = [cell.rstrip("†") for cell in row[1:-1] if cell != "–"]
        assert shown == [f"{value:.1f}" for values in paper[method] for value in values]
        assert row[-1] == final
    assert finetune.count("–") == 6


def test_carried_values_are_marked_and_explained(make_run, tmp_path):
    page = report([make_run(tmp_path / "run")], tmp_path)
    row = page.table("FID of every")[2]
    assert row[1:5] == ["29.0", "29.0†", "29.0†", "29.0†"]
    assert "† carried over" in page.text


def test_the_summary_says_what_came_out(make_run, tmp_path):
    page = report([make_run(tmp_path / "f", "finetune"), make_run(tmp_path / "e", "eft")], tmp_path)
    for words in (
        "cats → birds → churches → towers",
        "101.2 for Finetune and 33.1 for EFT",
        "with EFT earlier tasks stay exactly as they were",
        "4.73 % (EFT) of the base network's parameters",
        "N = 5,000",
    ):
        assert words in page.text
    at_a_glance = page.table("Results at a glance")
    assert at_a_glance[1] == ["Finetune", "101.2", "18.6", "+110.2", "0.00 %", "1"]
    assert at_a_glance[2] == ["EFT", "33.1", "33.1", "0.0", "4.73 %", "1"]


def test_seeds_give_mean_and_spread(make_run, tmp_path):
    runs = [
        make_run(tmp_path / f"{method}-{seed}", method, seed=seed) for method in ("finetune", "eft") for seed in (0, 1)
    ]
    page = report(runs, tmp_path)
    row = page.table("FID of every")[3]
    assert row[0] == "EFT"
    assert row[1] == f"{29.0 + 0.75:.1f} ± {1.5 / math.sqrt(2):.1f}"
    assert len(page.table("FID of every")) == 4
    assert "2 seeds" in page.text


def test_the_page_stands_alone_and_is_accessible(make_run, tmp_path):
    runs = [make_run(tmp_path / method, method, samples=True) for method in ("finetune", "eft")]
    page = report(runs, tmp_path)
    assert len(page.images) == 2 * (4 + 10)
    assert all(image["alt"] and image["src"].startswith("data:image/") for image in page.images)
    assert page.svgs
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.svgs)
    assert all(link.startswith(("data:", "#")) for link in page.links)
    assert len(page.captions) == len(page.tables)
    text = (tmp_path / "report/report.html").read_text()
    assert "<script" not in text
    assert not re.search(r"url\(|@import|https?://", text)


def test_a_stand_in_for_fid_is_called_so(make_run, tmp_path):
    page = report([make_run(tmp_path / "run", metric="FD-random")], tmp_path)
    assert "It is not FID" in page.text
    assert f"eftgan evaluate {tmp_path / 'run'}" in page.text
    spaced = report([make_run(tmp_path / "a run", metric="FD-random")], tmp_path)
    assert f"eftgan evaluate '{tmp_path / 'a run'}'" in spaced.text
    assert not any(caption.startswith("FID") for caption in page.captions)


def test_missing_pieces_are_left_out(tmp_path):
    key = ("r", "eft", 0, "cats", "cats")
    append_scores(tmp_path / "run/scores.jsonl", [Score(*key, "FID", 30.0, 100)])
    page = report([tmp_path / "run"], tmp_path)
    assert page.images == []
    assert "Growth" not in page.text
    assert page.table("FID of every")[-1] == ["EFT", "30.0", "30.0"]


def test_an_unfinished_evaluation_is_shown_as_such(make_run, tmp_path):
    run = make_run(tmp_path / "run", "finetune")
    scores = [s for s in read_scores(run / "scores.jsonl") if s.trained_through != "towers"]
    (run / "scores.jsonl").unlink()
    append_scores(run / "scores.jsonl", scores)
    page = report([run], tmp_path)
    assert "not complete" in page.text
    assert page.table("FID of every")[2][-1] == "n/m"


def test_of_two_lines_for_a_cell_the_one_with_most_samples_counts(tmp_path):
    key = ("r", "eft", 0, "cats", "cats", "FID")
    scores = [Score(*key, 30.0, 5000), Score(*key, 50.0, 100)]
    append_scores(tmp_path / "run/scores.jsonl", scores)
    assert report([tmp_path / "run"], tmp_path).table("FID of every")[-1][1] == "30.0"


def test_different_references_and_counts_are_cautioned(tmp_path):
    for name, n in (("a", 100), ("b", 200)):
        score = Score(name, name, 0, "cats", "cats", "FID", 30.0, n, {"reference": name})
        append_scores(tmp_path / name / "scores.jsonl", [score])
    page = report([tmp_path / "a", tmp_path / "b"], tmp_path)
    assert "different real images for cats" in page.text
    assert "different N cannot be compared" in page.text


def test_real_against_real_is_the_floor(make_run, tmp_path):
    run = make_run(tmp_path / "run")
    append_scores(run / "scores.jsonl", [Score("run", "eft", 0, "real", "cats", "FID", 4.2, 2500)])
    page = report([run], tmp_path)
    assert "the floor: cats 4.2 (N = 2,500)" in page.text
    assert page.table("FID of every")[0][1:5] == ["cats", "birds", "churches", "towers"]


def test_of_many_tasks_the_floor_is_told_as_a_range(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("eftgan.reports.notes.MOST_SHOWN", 2)
    run = make_run(tmp_path / "run")
    values = {"cats": 4.2, "birds": 3.1, "towers": 9.0}
    append_scores(
        run / "scores.jsonl", [Score("run", "eft", 0, "real", task, "FID", v, 100) for task, v in values.items()]
    )
    assert "the floor: 3.1 to 9.0 over 3 tasks." in report([run], tmp_path).text


def test_the_floor_follows_the_sequence_and_tells_how_many_real_images_there_are(make_run, tmp_path):
    run = make_run(tmp_path / "run")
    for task, n in (("towers", 300), ("birds", 200), ("cats", 100)):  # as measured
        floor = Score("run", "eft", 0, "real", task, "FID", 4.2, n, {"reference_n": 5 * n})
        append_scores(run / "scores.jsonl", [floor])
    score = Score("run", "eft", 0, "towers", "towers", "FID", 27.2, 5000, {"reference": "ref-3", "reference_n": 9000})
    append_scores(run / "scores.jsonl", [score])
    page = report([run], tmp_path)
    floor = "cats 4.2 (N = 100 against 500), birds 4.2 (N = 200 against 1,000), towers 4.2 (N = 300 against 1,500)."
    assert f"the floor: {floor}" in page.text
    assert "N = 5,000 samples behind each value, compared with 9,000 real images." in page.text


def test_forward_transfer_is_measured_against_networks_trained_alone(make_classifier_run, tmp_path):
    runs = [make_classifier_run(tmp_path / m, m, 0) for m in ("finetune", "eft", "separate")]
    columns, finetune, eft, separate = report(runs, tmp_path).table("Results at a glance")
    place = columns.index("Forward transfer")
    assert [row[place] for row in (finetune, eft, separate)] == ["+3.0", "+3.0", "0.0"]
    assert "Forward transfer" not in report(runs[:2], tmp_path).table("Results at a glance")[0]


def test_what_is_just_learned_is_measured_by_fine_tuning(make_run, tmp_path):
    runs = [make_run(tmp_path / name, name) for name in ("finetune", "eft")]
    columns, *rows = report(runs, tmp_path).table("FID when just learned")
    assert columns == ["Method", "birds", "churches", "towers"]
    assert rows == [["EFT", "2.08", "2.83", "2.14"]]  # the paper's 44.1 / 21.2, 32.3 / 11.4, 27.2 / 12.7
    assert not any(caption.startswith("FID when") for caption in report(runs[1:], tmp_path).captions)


def test_values_of_fewer_samples_are_marked(make_run, tmp_path):
    run = make_run(tmp_path / "run", "finetune", n=500)
    append_scores(run / "scores.jsonl", [Score("run", "finetune", 0, "cats", "cats", "FID", 25.0, 1000)])
    page = report([run], tmp_path)
    assert page.table("FID of every")[2][1:3] == ["25.0", "156.9‡"]
    assert "‡ fewer samples: N = 500." in page.text
    assert "‡" not in "".join(page.table("KID of every")[2])


def test_classifiers_use_the_same_page(make_classifier_run, tmp_path):
    runs = [make_classifier_run(tmp_path / f"{m}-{s}", m, s) for m in ("finetune", "eft") for s in (0, 1)]
    page = report(runs, tmp_path)
    assert "One classifier, 10 tasks" in page.text
    header, finetune, eft = page.table("Average accuracy-CIL in %")
    assert header == ["After task", *map(str, range(1, 11))]
    assert float(eft[-1].split()[0]) > float(finetune[-1].split()[0])
    assert eft[1].startswith("81.8 ±")
    assert page.table("Average accuracy-TIL")
    forgetting = page.table("Forgetting in accuracy-CIL")
    assert forgetting[2][1].startswith("+10.8")  # 9 steps of 0.012


def test_sequences_of_other_tasks_get_their_own_section(make_run, make_classifier_run, tmp_path):
    page = report([make_run(tmp_path / "a"), make_classifier_run(tmp_path / "b", "eft", 0, tasks=3)], tmp_path)
    assert page.table("FID of every")
    assert page.table("accuracy-CIL in % of every")


def test_names_are_escaped_everywhere(tmp_path):
    score = Score("r", "a & <b>_$%", 0, "<i>", "<i>", "FID", 1.0, 10)
    append_scores(tmp_path / "run/scores.jsonl", [score])
    page = report([tmp_path / "run"], tmp_path)
    assert page.table("FID of every")[-1][0] == "a & <b>_$%"
    assert r"a \& <b>\_\$\%" in (tmp_path / "report/table.tex").read_text()


def test_markdown_shows_names_and_never_takes_them_for_markup(tmp_path):
    label, task = "<img src=x> *a* [b](c) `d` _e_ f_g | h & i", "<i>t"
    append_scores(tmp_path / "run/scores.jsonl", [Score("r", label, 0, task, task, "<b>M", 1.0, 10)])
    (tmp_path / "run/run.json").write_text(json.dumps({"command": "train `x` <b>"}))
    report([tmp_path / "run"], tmp_path)
    text = (tmp_path / "report/report.md").read_text()
    outside_code = re.sub(r"(`+)[^`].*?[^`]\1(?!`)", "", text)
    assert not re.search(r"<\w", outside_code)
    assert "&lt;img src=x&gt; &#42;a&#42; &#91;b&#93;(c) &#96;d&#96; &#95;e&#95; f_g &#124; h &amp; i" in text
    assert "`` train `x` <b> ``" in text
    assert html.unescape(text).count(f"| {label} |") == 2


def test_tex_is_balanced_with_the_right_number_of_columns(make_run, tmp_path):
    report([make_run(tmp_path / "f", "finetune"), make_run(tmp_path / "e", "eft")], tmp_path)
    text = (tmp_path / "report/table.tex").read_text()
    for environment in ("table*", "tabular"):
        assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 2
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert text.count("$") % 2 == 0
    columns = re.search(r"begin\{tabular\}\{([^}]*)\}", text)[1]
    assert len(re.sub(r"[ |]", "", columns)) == 18
    rows = [line for line in text.split(r"\end{tabular}")[0].splitlines() if line.endswith(r"\\")]
    for row in rows:
        spans = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", row))
        assert row.replace(r"\&", "").count("&") + 1 + spans == 18
    assert r"29.0$^\dagger$" in text
    assert r"\textbf{33.1}" in text


def test_csv_holds_every_line(make_run, tmp_path):
    run = make_run(tmp_path / "run")
    report([run], tmp_path)
    with open(tmp_path / "report/scores.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    back = [
        Score(**row | {"seed": int(row["seed"]), "value": float(row["value"]), "n": int(row["n"])}
              | {"details": json.loads(row["details"])})
        for row in rows
    ]  # fmt: skip
    assert back == read_scores(run / "scores.jsonl")


def test_markdown_tables_are_regular(make_run, tmp_path):
    report([make_run(tmp_path / "run")], tmp_path)
    text = (tmp_path / "report/report.md").read_text()
    assert "| EFT | 29.0 | 29.0† |" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_bad_input_is_named(tmp_path):
    out = tmp_path / "report.html"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="eftgan evaluate"):
        write_report([tmp_path / "empty"], out)
    with pytest.raises(UserError, match="no run folder"):
        write_report([tmp_path / "missing"], out)
    with pytest.raises(UserError, match="at least one run"):
        write_report([], out)
    (tmp_path / "empty/scores.jsonl").write_text('{"run": 1}\n')
    with pytest.raises(UserError, match="not a score"):
        write_report([tmp_path / "empty"], out)
    (tmp_path / "empty/run.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        write_report([tmp_path / "empty"], out)
    with pytest.raises(UserError, match="HTML page"):
        write_report([tmp_path / "empty"], tmp_path / "report.pdf")


def test_a_value_that_is_not_finite_does_not_break_the_page(make_run, tmp_path):
    run = make_run(tmp_path / "run")
    append_scores(run / "scores.jsonl", [Score("run", "eft", 0, "towers", "towers", "FID", math.nan, 9000)])
    page = report([run], tmp_path)
    assert "not finite" in page.table("FID of every")[2]


@pytest.mark.parametrize("value", [1e308, -1.7e308])
def test_a_huge_value_is_shown_as_one(make_run, make_classifier_run, tmp_path, value):
    runs = [make_run(tmp_path / f"{seed}", "finetune", seed=seed) for seed in (0, 1)]
    for run, sign in zip(runs, (1, -1), strict=True):
        lines = [Score("r", "finetune", 0 if sign > 0 else 1, "towers", task, "FID", sign * value, 5000) for task in
                 ("cats", "birds")]  # fmt: skip
        append_scores(run / "scores.jsonl", lines)
    shares = make_classifier_run(tmp_path / "shares", "eft", 0, tasks=3)
    append_scores(shares / "scores.jsonl", [Score("r", "eft", 0, "task-03", "task-01", "accuracy-CIL", value, 1000)])
    assert f"{value:.1e}" in "".join(report(runs[:1], tmp_path).table("FID of every")[2])
    assert "not finite" not in report(runs[:1], tmp_path).table("Results at a glance")[1]
    report(runs, tmp_path)
    report([shares], tmp_path)


@pytest.mark.parametrize("side", [10_000, 20_000])  # Pillow only warns of the first
def test_a_picture_that_would_unpack_to_gigabytes_is_refused_by_name(make_run, tmp_path, side):
    run = make_run(tmp_path / "run", samples=True)
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    (run / "samples/after-02-birds/01-cats.png").write_bytes(start + bytes(4) + b"IDAT" + bytes(4))
    with pytest.raises(UserError, match=r"after-02-birds/01-cats\.png can't be read as a picture .*bomb"):
        report([run], tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_method_without_any_finite_value_has_no_line_in_the_curve(make_run, tmp_path, value):
    runs = [make_run(tmp_path / f"lost-{seed}", "finetune", seed=seed) for seed in (0, 1)]
    for run in runs:
        scores = [replace(s, value=value if s.metric == "FID" else s.value) for s in read_scores(run / "scores.jsonl")]
        (run / "scores.jsonl").unlink()
        append_scores(run / "scores.jsonl", scores)
    lost, both = report(runs, tmp_path), report([*runs, make_run(tmp_path / "eft")], tmp_path)
    assert lost.table("FID of every")[2][-1] == "not finite"
    assert not any("Average FID" in svg["aria-label"] for svg in lost.svgs)
    assert [svg["aria-label"].split(": ")[1] for svg in both.svgs if svg["aria-label"].startswith("Average FID")] == [
        "EFT 29.0, 36.5, 35.1, 33.1"
    ]
    assert "with EFT earlier tasks stay" in both.text
    assert "with Finetune they end" not in both.text


def test_the_report_needs_no_torch():
    code = "import eftgan.reports, sys; print([m for m in ('torch', 'numpy', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_written_in_a_curve_lies_inside_of_it():
    labels = [f"EFT (runs/wide-and-long-{i}/of-many-names)" for i in range(24)]
    lines = [Line(label, [0.0001 + i * 1e-7, 0.0002]) for i, label in enumerate(labels)]
    ticks = ["1 a-very-long-name", "2 another-long-name"]
    root = ElementTree.fromstring(line_chart(lines, ticks, x_label="after task", y_label="average", alt="x"))
    _, _, width, height = map(float, root.get("viewBox").split())
    texts = list(root.iter("text"))
    assert len(texts) > len(lines) + len(ticks)
    for text in texts:
        before = {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
        wide = 6.5 * len(text.text)
        first = float(text.get("x")) - before * wide
        assert first >= 0, text.text
        assert first + wide <= width, text.text
        assert 8 <= float(text.get("y")) <= height - 4, text.text
    heights = sorted(float(text.get("y")) for text in texts if text.get("class").startswith("name"))
    assert min(b - a for a, b in itertools.pairwise(heights)) > 14


def test_what_is_measured_once_per_task_has_a_column_per_task(make_classifier_run, tmp_path):
    run = make_classifier_run(tmp_path / "run", "eft", 0, tasks=3)
    names = [f"task-{i + 1:02d}" for i in range(3)]
    lines = [Score("run", "eft", 0, name, name, "seconds", 10.0 * (i + 1), 5) for i, name in enumerate(names)]
    append_scores(run / "scores.jsonl", lines)
    table = report([run], tmp_path).table("Seconds in s of each task (lower is better)")
    assert table == [["Method", *names, "Mean"], ["EFT", "10.0", "20.0", "30.0", "20.0"]]


def test_the_final_average_stays_in_sight_of_wide_tables(make_run, tmp_path):
    write_report([make_run(tmp_path / "run")], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"tr > :last-child \{ position: sticky; right: 0;", page)
    assert re.search(r'<div class="scroll"[^>]*><table>', page)


def test_methods_with_one_set_of_adapters_for_all_tasks_say_so(make_run, tmp_path):
    note = "one set of adapters serves all tasks"
    run = make_run(tmp_path / "finetune", "finetune")
    assert note not in report([run], tmp_path).text
    text = (run / "scores.jsonl").read_text()
    (run / "scores.jsonl").write_text(text.replace('"flops_task": 4100000000.0', '"flops_task": 4800000000.0'))
    page = report([run, make_run(tmp_path / "eft")], tmp_path)
    assert f"With Finetune {note}: a task adds no adapters" in page.text


def test_a_classifiers_report_opens_with_what_is_forgotten_and_then_with_what_gets_harder(
    make_classifier_run, tmp_path
):
    page = report([make_classifier_run(tmp_path / "run", "eft", 0)], tmp_path)
    places = [
        page.text.index(words)
        for words in (
            "Task-incremental. Accuracy-TIL is",
            "it falls only by what is forgotten",
            "Class-incremental. Accuracy-CIL is",
            "it falls with every task even where nothing is forgotten",
            "Results at a glance: accuracy-TIL (task-incremental) in %",
            "Results at a glance: accuracy-CIL (class-incremental) in %",
        )
    ]
    assert places == sorted(places)
