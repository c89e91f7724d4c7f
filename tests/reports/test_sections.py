"""One ordered list of sections serves the page and the files beside it."""

import re

from eftgan.reports import sections
from eftgan.reports.items import Caution, Cell, Figure, Heading, Paragraph, Table
from eftgan.reports.results import studies
from eftgan.reports.runs import load_runs
from eftgan.reports.sections import report_items

from .page import report


def test_markdown_has_the_tables_of_the_page_in_their_order(make_run, make_classifier_run, tmp_path):
    runs = [make_run(tmp_path / name, name, samples=True) for name in ("finetune", "eft")]
    page = report([*runs, make_classifier_run(tmp_path / "classes", "eft", 0)], tmp_path)
    captions = re.findall(r"^\*\*(.*)\*\*$", (tmp_path / "report/report.md").read_text(), flags=re.MULTILINE)
    assert captions == [caption for caption in page.captions if "seed" not in caption]  # those of samples have it
    assert len(captions) > 10


def test_a_new_section_is_one_line_of_the_list(make_run, tmp_path, monkeypatch):
    def mine(study):
        yield Heading("Mine", study.unique("mine"))
        yield Paragraph(f"About {len(study.tasks)} tasks.")
        yield Caution("With care.")
        yield Table("My table.", ["Method", "Value"], [[Cell("EFT"), Cell("7")]], tex_label="tab:mine")
        yield Figure('<svg role="img"></svg>', "My figure.", file="mine.svg")

    monkeypatch.setattr(sections, "SECTIONS", [mine, *sections.SECTIONS])
    page = report([make_run(tmp_path / "run")], tmp_path)
    assert page.captions[0] == "My table."
    assert page.text.index("About 4 tasks.") < page.text.index("My figure.") < page.text.index("Results at a glance")
    beside = {path.name: path.read_text() for path in (tmp_path / "report").iterdir()}
    assert "About 4 tasks.\n\n> With care.\n\n**My table.**" in beside["report.md"]
    assert beside["table.tex"].index("tab:mine") < beside["table.tex"].index("tab:fid")
    assert beside["mine.svg"].startswith("<svg xmlns=")


def test_anchors_labels_and_files_differ_between_studies(make_run, make_classifier_run, tmp_path):
    runs = [make_run(tmp_path / "a"), make_classifier_run(tmp_path / "b", "eft", 0, tasks=3)]
    further = make_classifier_run(tmp_path / "c", "eft", 0, tasks=4)
    items = report_items(studies(load_runs([*runs, further])))
    for names in (
        [item.id for item in items if isinstance(item, Heading) and item.id],
        [item.tex_label for item in items if isinstance(item, Table) and item.tex_label],
        [item.file for item in items if isinstance(item, Figure) and item.file],
    ):
        assert len(names) > 4
        assert len(set(names)) == len(names)
