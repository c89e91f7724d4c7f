"""Curves of tasks in training, on the report's page."""

import pytest

from eftgan.evaluation.metrics.curve import Curve, Point, write_curve
from eftgan.runfolder import RunFolder

from .page import report

VALUES = {"cats": (0.4, 0.3, 0.2, 0.1), "birds": (0.3, 0.2, 0.199, 0.25)}


def with_curves(folder, **changes):
    for index, (task, values) in enumerate(VALUES.items()):
        points = tuple(Point(500 * number, value, 0.01) for number, value in enumerate(values, 1))
        curve = Curve(task, "KID", 500, points, kept=2000, foundation=index == 0)
        write_curve(RunFolder(folder).curve(index, task), curve)
    return folder


def test_the_curves_of_one_run_are_a_line_and_a_row_for_each_task(make_run, tmp_path):
    page = report([with_curves(make_run(tmp_path / "run"))], tmp_path)
    columns, *rows = page.table("How far each task came")
    assert columns == ["Task", "Steps", "Best", "at step", "Last", "Late gain", "Step kept"]
    assert rows == [
        ["cats", "2,000", "0.1000", "2,000", "0.1000", "67 %", "2,000"],
        ["birds", "2,000", "0.1990", "1,500", "0.2500", "1 %", "2,000"],
    ]
    drawing = (tmp_path / "report" / "training-KID.svg").read_text()
    assert "cats 0.4000, 0.3000, 0.2000, 0.1000; birds" in drawing
    assert drawing.count("<polyline") == 2
    assert "cats: KID still fell by 67 % in the second half of its 2000 steps" in page.text
    assert "birds: KID still fell" not in page.text


def test_several_methods_share_a_figure_for_each_task(make_run, tmp_path):
    runs = [with_curves(make_run(tmp_path / name, name)) for name in ("finetune", "eft")]
    page = report(runs, tmp_path)
    _, *rows = page.table("How far each task came")
    assert [row[0] for row in rows] == ["Finetune: cats", "Finetune: birds", "EFT: cats", "EFT: birds"]
    assert {path.name for path in (tmp_path / "report").glob("training-*")} == {
        "training-KID-cats.svg",
        "training-KID-birds.svg",
    }


@pytest.mark.parametrize("points", [(), (Point(500, float("nan")),)])
def test_a_run_without_curves_has_no_such_section(make_run, tmp_path, points):
    run = make_run(tmp_path / "run")
    if points:
        write_curve(RunFolder(run).curve(0, "cats"), Curve("cats", "unheard-of", 500, points))
    assert "while training" not in report([run], tmp_path).text
