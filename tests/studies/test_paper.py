"""The paper's tables: what is printed, what is trained for it, and the page that shows both."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from eftgan.commands import main
from eftgan.config import build, read_yaml
from eftgan.errors import UserError
from eftgan.files import write_json, write_text
from eftgan.kinds import load_kind
from eftgan.methods import METHODS, Finetune
from eftgan.runfolder import RunFolder
from eftgan.scores import Score, append_scores, read_scores
from eftgan.studies.paper.listing import list_rows
from eftgan.studies.paper.page import write_page
from eftgan.studies.paper.plan import Plan, named_rows, recorded_plans
from eftgan.studies.paper.protocols import Settings, entries_with_data, method_of, set_name
from eftgan.studies.paper.tables import Row, load_paper
from eftgan.training.kind import Kind

PAPER = load_paper()
BUILT_IN = ("sources=[{name: shapes/3, data: 'shapes:6'}]", "network={name: resnet8, size: 16}", "training.batch=10")
TINY = [*BUILT_IN, "--limit", "60", "--budget", "0.004", "--tasks", "2"]  # one epoch of six steps
SETTINGS = Settings(budget=0.004, tasks=2, limit=60, words=BUILT_IN)


FULL = Settings()
AUTHORS = tuple(each.name for each in PAPER.protocol(["authors"]))


def plan_of(name: str, out: Path, settings: Settings = FULL) -> Plan:
    return Plan(PAPER, PAPER.table(name), settings, out)


def test_every_row_has_a_method_and_data_or_is_awaited(tmp_path):
    for table in PAPER.tables:
        plan = plan_of(table.name, tmp_path)
        for row in table.rows:
            if row.recipe in METHODS or row.recipe not in PAPER.awaited:
                data = plan.data(row.recipe)
                assert METHODS[method_of(data)].suits(plan.kind.name), row
                assert {set_name(entry["data"]) for entry in entries_with_data(plan.kind, data)} <= set(PAPER.data), row


def test_every_row_is_valid_with_all_settings_at_once(tmp_path):
    known = set()
    for table in PAPER.tables:
        protocol = () if table.config.startswith("gan/") else AUTHORS
        plan = plan_of(table.name, tmp_path, Settings(0.1, 2, 500, small=bool(table.small), protocol=protocol))
        for row in table.rows:
            if (table.config, row.recipe) not in known and (row.recipe in METHODS or row.recipe not in PAPER.awaited):
                experiment = build(plan.kind.experiment_type, plan.data(row.recipe), f"{table.name}, {row.name}")
                assert len(experiment.task_names) == 2
                known.add((table.config, row.recipe))
    assert {recipe for config, recipe in known if config == "classifier/lenet_apd"} == {
        "finetune", "l2t", "pnn", "den", "rcl", "apd", "eft",
    }  # fmt: skip


@pytest.mark.parametrize("table", PAPER.tables, ids=lambda table: table.name)
def test_every_series_has_as_many_numbers_as_its_sequence(table, tmp_path):
    numbers = len(table.series.cells(len(plan_of(table.name, tmp_path).tasks))) if table.series else 0
    assert {len(row.curve) for row in table.rows} == {0 if table.drawn else numbers}
    assert table.drawn == (not any(row.curve or row.paper for row in table.rows))


def test_the_papers_averages_follow_from_its_tasks_but_for_two_that_are_noted():
    differing = []
    for table in PAPER.tables:
        for row in table.rows:
            if row.curve and table.series.kind == "each":
                mean = sum(row.curve) / len(row.curve)
                differing += [(table.name, row.recipe)] * (abs(mean - row.paper["accuracy"]) > 0.06)
            elif row.curve and table.series.kind == "matrix":  # the last of every task
                last = [value for (after, _), value in zip(table.series.cells(4), row.curve, strict=True) if after == 3]
                assert sum(last) / 4 == pytest.approx(row.paper["fid"], abs=0.08)
    assert differing == [("imagenet", "eft"), ("heterogeneous", "apd")]
    assert all("average" in " ".join(PAPER.table(name).notes) for name, _ in differing)


def test_a_number_that_belongs_nowhere_is_refused():
    table = PAPER.table("capacity")
    for row, message in (
        (Row("EFT", "eft", paper={"speed": 1.0}), "no figure 'speed'"),
        (Row("EFT", "eft", paper={"cost": 1.0}), "figures are missing"),
        (Row("EFT", "eft", paper={"cost": [1.0, 0.1, 2.0], "accuracy": 1.0}), r"\[value, spread\]"),
        (Row("EFT", "eft", paper={"cost": 1.0, "accuracy": 1.0}, curve=[1.0]), "series"),
        (Row("EFT", "eft", paper={"cost": 1.0, "accuracy": 1.0}, only_here=True), "only here has a figure"),
    ):
        with pytest.raises(UserError, match=message):
            dataclasses.replace(PAPER, tables=[dataclasses.replace(table, rows=[row])])


def test_rows_that_the_paper_does_not_have_stand_beside_no_figure_of_it(tmp_path):
    plan = plan_of("capacity", tmp_path)
    lines = write_page([plan], tmp_path)[1].read_text().splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("|")}
    assert rows["L2T"].startswith("| L2T | – | – | – | – | – | – |")
    assert "| – | 1.80 | – | 55.26 |" in rows["RCL's growth, fixed widths"]
    title = plan.data("rcl")["title"]
    assert title == "RCL's growth, fixed widths"
    assert plan.data("apd")["title"] is None  # as the method is called


def test_a_budget_keeps_whole_epochs_and_the_shape_of_the_schedule(tmp_path):
    training = plan_of("cifar100-10", tmp_path, Settings(budget=0.1)).data("eft")["training"]
    assert (training["first"]["epochs"], training["first"]["milestones"]) == (25, [10, 15, 20])
    assert (training["later"]["epochs"], training["later"]["milestones"]) == (20, [7, 12, 15])
    least = plan_of("cifar100-10", tmp_path, Settings(budget=0.001)).data("eft")["training"]["first"]
    assert (least["epochs"], least["milestones"]) == (1, [0.4, 0.6, 0.8])
    tasks = plan_of("gan", tmp_path, Settings(budget=0.1)).data("eft")["tasks"]
    assert [task["epochs"] for task in tasks] == [80, 60, 5, 5]
    assert plan_of("gan", tmp_path, Settings(budget=0.1)).length == (
        "cats 80 epochs, birds 60 epochs, churches 5 epochs, towers 5 epochs"
    )
    small = plan_of("gan", tmp_path, Settings(budget=0.1, small=True))
    assert small.data("ewc")["training"]["steps"] == 300
    assert small.length == "300 steps per task"


def test_the_authors_protocol_changes_what_it_says_and_leaves_other_methods_alone(tmp_path):
    settings = Settings(protocol=AUTHORS)
    eft, off, lwf = (plan_of("cifar100-10", tmp_path, settings).data(name) for name in ("eft", "margin_off", "lwf"))
    assert eft["training"]["rotation"] == 10
    assert eft["training"]["later"] is None
    assert eft["training"]["first"]["milestones"] == [100, 150, 200]
    assert (eft["method"]["heads"], eft["method"]["first_init"]) == ("previous", "random")
    assert eft["method"]["margin"] == {"form": "l2", "strength": 0.05, "delta": 1.0}
    assert off["method"]["margin"] is None
    assert lwf["method"] == {"name": "lwf"}
    assert lwf["training"]["rotation"] == 10


def test_small_forms_leave_the_rates_of_adam_alone(tmp_path):
    plan = plan_of("resnet18-third", tmp_path, Settings(small=True))
    assert plan.data("supsup")["training"]["first"]["learning_rate"] == 1e-3
    assert plan.data("eft")["training"]["first"]["learning_rate"] == 0.05
    with pytest.raises(UserError, match="no small form of imagenet"):
        plan_of("imagenet", tmp_path, Settings(small=True)).data("eft")


def test_what_is_typed_wins_over_a_small_form(tmp_path):
    words = ("training.first.learning_rate=0.2", "training.later=null")
    training = plan_of("cifar100-10", tmp_path, Settings(small=True, words=words)).data("ewc")["training"]
    assert (training["first"]["learning_rate"], training["first"]["weight_decay"]) == (0.2, 5e-4)
    assert (training["later"], training["batch"]) == (None, 32)
    adam = plan_of("cifar100-10", tmp_path, Settings(small=True, words=("training.optimizer=adam",))).data("ewc")
    assert adam["training"]["first"]["learning_rate"] == 0.01  # as the config has it


def test_keys_of_one_method_are_for_its_rows_alone(tmp_path):
    plan = plan_of("capacity", tmp_path, dataclasses.replace(SETTINGS, words=(*BUILT_IN, "method.l1=0.1")))
    assert plan.trainable(["apd"]) == ["apd"]
    assert plan.comparison(["apd"], [0]).jobs[0].experiment.method.l1 == 0.1
    assert plan.length == "1 epoch"
    assert plan.tasks == ["shapes-1", "shapes-2", "shapes-3"]
    assert re.search(r"pnn +PNN +settings do not fit", list_rows(plan))
    with pytest.raises(UserError, match=r"unknown key method\.l1"):
        plan.trainable()


def test_other_settings_have_other_folders_and_other_places_do_not():
    given = [
        {}, {"budget": 0.1}, {"tasks": 3}, {"limit": 3}, {"small": True}, {"protocol": ("rotation",)},
        {"words": ("training.batch=8",)}, {"words": ("training.batch=9",)},
    ]  # fmt: skip
    assert len({Settings(**each).folder for each in given}) == len(given)
    assert Settings(places={"cifar100": "elsewhere"}).folder == Settings().folder == "full"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A row of figure 4 on the built-in pictures, with two seeds."""
    out = tmp_path_factory.mktemp("paper")
    main(["paper", "forward-transfer", *TINY, "--rows", "eft", "--seeds", "0,1", "--out", str(out)])
    return out


def test_a_table_is_trained_and_shown_beside_the_papers_with_mean_and_spread(trained):
    plan = plan_of("forward-transfer", trained, SETTINGS)
    assert [plan.state(row.recipe) for row in plan.table.rows] == ["done", "missing", "missing"]
    finals = []
    for path in plan.finished("eft"):
        lines = [s for s in read_scores(path / "scores.jsonl") if s.metric == "accuracy-CIL"]
        last = [s.value for s in lines if s.trained_through == "shapes-2"]
        assert len(last) == 2
        finals.append(100 * sum(last) / 2)
    mean, spread = sum(finals) / 2, abs(finals[0] - finals[1]) / 2**0.5
    text = (trained / "paper.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| with ("))
    assert f"| {mean:.1f} ± {spread:.1f} | drawn |" in line
    assert "| 0.004 | 0, 1 |" in line
    assert line.endswith("| done |")
    assert "Trained for 1 epoch; in the paper 250 epochs, then 200 per task." in text
    assert "2 tasks of 3." in text
    assert "0.004 of the epochs, 2 of 3 tasks, 60 images, other settings: figures compare the rows" in text
    assert "with (tau&#95;t starts" in text or "with (tau_t starts" in text
    page = (trained / "paper.html").read_text()
    assert "Figure 4: CIFAR-100/10" in page
    assert page.count("<svg") == 1
    assert "over the tasks seen so far, after each task: with (tau_t starts from tau_t-1)" in page
    assert "eft-seed1" in page  # how the figures were made


def test_a_finished_table_is_not_trained_again_and_another_one_uses_its_runs(trained, monkeypatch, capsys):
    def train(self, experiment, command, *, locked=False):
        raise AssertionError(experiment.out)

    monkeypatch.setattr(Kind, "train", train)
    main(["paper", "forward-transfer", "margin", *TINY, "--rows", "eft", "--seeds", "0,1", "--out", str(trained)])
    assert "| a8 b16 + L_M |" in (text := (trained / "paper.md").read_text())
    assert re.search(r"\| a4 b8 \| – \| 44\.0 \|.*\| missing \|", text)
    assert [plan.table.name for plan in recorded_plans(PAPER, trained)] == ["margin", "forward-transfer"]
    capsys.readouterr()
    main(["paper", "--out", str(trained)])
    listed = capsys.readouterr().out
    own, other = re.search(r"forward-transfer +(figure 4 .*)\n +(budget.*)", listed).groups()
    assert own.endswith("no data/cifar100")
    assert re.fullmatch(r"budget-0\.004_tasks-2_limit-60_other-\w+ +1 of 3 done", other)
    assert all(table.name in listed for table in PAPER.tables)
    main(["paper", "--page", "--out", str(trained)])
    assert (trained / "paper.md").read_text() == text


def test_rows_are_looked_for_in_every_table():
    plans = [plan_of(name, Path("runs")) for name in ("flops", "margin")]
    assert named_rows(plans, ["margin_off", "eft"]) == [["eft"], ["margin_off", "eft"]]
    assert named_rows(plans, None) == [None, None]


def test_data_that_is_missing_is_named_and_refused_only_when_it_is_to_be_trained(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["paper", "imagenet", "--list"])
    assert "no data/imagenet: your own ImageNet-1K" in capsys.readouterr().out
    for words, message in (
        (["imagenet"], "imagenet: no data/imagenet: your own ImageNet-1K"),
        (["imagenet", "--data", "imagenet=there"], "/CLASS/; or --data imagenet=PATH"),
        (
            ["margin", "--data", "cifar100=there"],
            "data_prep cifar DOWNLOADS there --classes 100; or --data cifar100=PA",
        ),
        (["gan"], "data_prep cats IMAGENET data/256/cats.lmdb --size 256; or --data cats=PATH"),
        (["gan", "--small"], "data_prep cats IMAGENET data/32/cats.lmdb --size 32; or --data cats=PATH"),
        (["tiny-imagenet", "--small"], "data_prep tiny DOWNLOADS data/tiny-imagenet --size 32; or"),
        (["margin", "sources.0.data=shapes_x"], "margin: no shapes_x: check the path"),
        (["gan", "--small", "--budget", "0.1", "training.steps=1k"], 'training.steps: a valid integer, not "1k"'),
        (["margin", "--budget", "0.5", "training.first=100"], "training.first: "),
        (["margin", "training.first=100", "--list"], "training.first: "),
        (["margin", "sources.0.data=null"], "sources.0.data: a valid string, not null"),
        (["margin", "sources=3"], "sources: "),
        (["margin", "--tasks", "2", "sources=[{data: 'shapes:12'}]"], "sources.0.name is missing"),
        (["margin", "method=3"], "method is 3"),
        (["imagenet", "--data", "imagenets=there"], "--data imagenets: give NAME=PATH; there are: cifar100"),
        (["imagenets"], "no 'imagenets'; did you mean imagenet?"),
        (["imagenet", "--budget", "0"], "--budget 0: a share of the epochs"),
        (["imagenet", "--tasks", "0"], "--tasks 0: at least one"),
        (["imagenet", "--protocol", "author"], "--protocol: no 'author'; did you mean authors?"),
        (["imagenet", "--rows", "si"], "--rows si: no such row in imagenet; there are: finetune, fixed"),
        (["flops", "margin", "--rows", "eft,si"], "--rows si: no such row in flops, margin; there are: eft, a4_b8"),
        (["flops", "margin", "--rows", "margin_off"], "--rows margin_off: flops has none of them"),
        (["--page"], "no runs of the paper's tables there yet"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["paper", *words])
        assert ended.value.code == 2
        error = capsys.readouterr().err.strip()
        assert message in error
        assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_words_that_fit_no_row_of_a_table_are_told_beside_it_in_the_list(tmp_path, capsys):
    main(["paper", "sources.0.data=null", "--out", str(tmp_path)])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert all(table.name in lines for table in PAPER.tables)
    assert lines["margin"].rstrip().endswith("sources.0.data: a valid string, not null")
    assert "unknown key sources" in lines["gan"]


@dataclasses.dataclass
class Nobody(Finetune):
    """A method that was not there before."""

    name: Literal["nobody"] = "nobody"


def test_a_method_that_is_awaited_has_a_row_and_joins_when_it_is_there(tmp_path, monkeypatch):
    row = Row("Nobody's", "nobody", paper={"cost": 2.0, "accuracy": 50.0})
    table = dataclasses.replace(PAPER.table("capacity"), rows=[row, PAPER.table("capacity").rows[-1]])
    paper = dataclasses.replace(PAPER, awaited=["nobody"], tables=[table])
    plan = Plan(paper, table, dataclasses.replace(SETTINGS), tmp_path)
    assert plan.trainable() == ["eft"]
    assert re.search(r"nobody +Nobody's +not here yet", list_rows(plan))
    text = write_page([plan], tmp_path)[1].read_text()
    assert "| Nobody's | – | 2.00 | – | 50.00 |" in text
    assert "| not here yet |" in text
    monkeypatch.setitem(METHODS, "nobody", Nobody)
    assert Plan(paper, table, SETTINGS, tmp_path).trainable() == ["nobody", "eft"]
    mistyped = dataclasses.replace(table, rows=[dataclasses.replace(row, recipe="nobdy")])
    with pytest.raises(UserError, match="no method or recipe 'nobdy'"):
        Plan(paper, mistyped, SETTINGS, tmp_path).trainable()


def finished_run(plan: Plan, recipe: str, seed: int, cells: dict, metric: str, growth: dict) -> None:
    """A run's folder as training leaves it, with the scores that are given."""
    folder = RunFolder(plan.folder / f"{recipe}-seed{seed}")
    write_text(folder.config, "{}\n")
    write_json(folder.facts, {"kind": plan.kind.name, "tasks": plan.tasks, "method": recipe, "finished": True})
    head = (folder.path.name, recipe, seed)
    scores = [Score(*head, plan.tasks[i], plan.tasks[j], metric, value, 100) for (i, j), value in cells.items()]
    scores += [Score(*head, task, task, "growth", 0.048, 0, growth) for task in plan.tasks]
    append_scores(folder.scores, scores)


def test_the_matrix_of_the_gan_stands_in_the_papers_order(tmp_path):
    plan = plan_of("gan", tmp_path)
    plan.record()
    cells = {(i, j): 10.0 * i + j for i in range(4) for j in range(i + 1)}
    finished_run(plan, "eft", 0, cells, "FID", {})
    text = write_page(recorded_plans(PAPER, tmp_path), tmp_path)[1].read_text()
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    ours = "0.0 | 10.0 | 20.0 | 30.0 | 11.0 | 21.0 | 31.0 | 22.0 | 32.0 | 33.0"
    assert ours in rows["EFT a32 b16, ours"]
    assert "29.0 | 29.0 | 29.0 | 29.0 | 44.1 | 44.1 | 44.1 | 32.3 | 32.3 | 27.2" in rows["EFT a32 b16, paper"]
    assert "cats 1 | cats 2 | cats 3 | cats 4 | birds 2" in rows["After task"]
    assert "| 31.5 | 33.1 | 4.80 % | 4.8 % |" in rows["EFT a32 b16"]


def test_parameters_and_flops_are_read_from_what_was_counted(tmp_path):
    counts = {"base_parameters": 1000, "adapter_parameters": 40, "head_parameters": 10, "norm_parameters": 0}
    growth = counts | {"flops_base": 200, "flops_task": 218}
    for name, expected in (("capacity", "| 1.49 | 1.04 |"), ("flops", "| 4.80 | 3.87 | 9.00 | 8.78 |")):
        plan = plan_of(name, tmp_path / name)
        plan.record()
        cells = {(9, j): 0.5 for j in range(10)}
        finished_run(plan, "eft", 0, cells, plan.table.figures[-1].metric, growth)
        text = write_page([plan], tmp_path / name)[1].read_text()
        label = next(row.name for row in plan.table.rows if row.recipe == "eft")
        row = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
        assert expected in row


@pytest.mark.slow
def test_two_processes_share_a_table_and_train_every_run_once(tmp_path):
    words = [sys.executable, "-m", "eftgan", "paper", "margin", *TINY, "--out", str(tmp_path)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(process.communicate()[0] for process in started)
    assert [process.returncode for process in started] == [0, 0]
    begun = re.findall(r"/(\w+-seed0): classifier, EFT", said)
    assert sorted(begun) == ["a4_b8-seed0", "a4_b8_margin_off-seed0", "eft-seed0", "margin_off-seed0"]
    assert (tmp_path / "paper.html").is_file()


def test_every_kind_can_be_shortened_limited_and_described(tmp_path):
    for name in ("gan", "classifier"):
        kind = load_kind(name)
        data = read_yaml(Path(__file__).parents[2] / "configs" / name / "shapes.yaml")
        data = data | kind.limited(data, 40)
        half = build(kind.experiment_type, data | kind.shortened(data, 0.5))
        whole = build(kind.experiment_type, data)
        assert re.search(r"\d", kind.length(half))
        assert kind.length(half) != kind.length(whole)
    assert json.dumps(data["limit"]) == "40"


def test_the_page_warns_of_epochs_that_were_chosen_on_test_images(tmp_path):
    for settings, warned in ((Settings(protocol=("best-on-test",)), True), (Settings(protocol=AUTHORS), False)):
        text = write_page([plan_of("cifar100-10", tmp_path, settings)], tmp_path)[1].read_text()
        assert ("best-on-test: the epoch that is best on the test images is kept, so" in text) == warned
    shorter = Settings(0.1, words=("training.selection=test",))
    text = write_page([plan_of("cifar100-10", tmp_path, shorter)], tmp_path)[1].read_text()
    assert "0.1 of the epochs, other settings: figures compare the rows with each other" in text
    assert "so the figures are too good." in text
