"""Runs on the Hub: what is pushed, what is fetched, and what people are told when it cannot be."""

import json
import platform
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import eftgan
from eftgan.classifier.kind import CLASSIFIERS
from eftgan.classifier.run import ClassifierRun
from eftgan.commands import main
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.gan.run import GanRun
from eftgan.hub.package import Files
from eftgan.hub.remote import HubRepo

from .conftest import SECRET, TASKS

NAME = "me/zoo"


@pytest.fixture(scope="module")
def packed(zoo) -> Files:
    return zoo.sharing().files(NAME, "mit")


@pytest.fixture
def pushed(hub, packed):
    HubRepo(NAME).push(packed, "as zoo.push_to_hub would")
    hub.asked.clear()
    return hub


def test_a_run_comes_back_from_the_hub_with_bit_identical_samples_of_every_task(hub, zoo, packed):
    zoo.push_to_hub(NAME, licence="mit")
    assert set(hub.files(NAME)) == {*packed, ".gitattributes"}
    run = eftgan.load_run(NAME)
    assert isinstance(run, GanRun)
    assert run.present == TASKS
    fetched, own = run.generator(3), zoo.generator(3)
    for task in TASKS:
        assert torch.equal(run.sample(task, 4, 3, fetched), zoo.sample(task, 4, 3, own))


@pytest.mark.parametrize("task", ["triangles", 3])
def test_one_task_is_fetched_without_the_files_of_the_others(pushed, zoo, task):
    run = eftgan.load_run(NAME, task=task)
    weights = [name for name in pushed.downloads() if name.endswith(".safetensors")]
    assert weights == ["shared.safetensors", "tasks/03-triangles.safetensors"]
    assert run.present == ["triangles"]
    assert torch.equal(run.sample("triangles", 4, seed=3), zoo.sample("triangles", 4, seed=3))
    with pytest.raises(UserError, match=r"01-discs.safetensors: no such file, and task discs needs it; .*: triangles"):
        run.sample("discs", 4)


def test_what_is_fetched_once_is_not_fetched_again_and_serves_without_the_hub(pushed, monkeypatch):
    eftgan.load_run(NAME, task="discs")
    pushed.downloads()
    eftgan.load_run(NAME, task="discs")
    assert pushed.downloads() == []
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody is there
    assert eftgan.load_run(NAME, task="discs").present == ["discs"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert eftgan.load_run(NAME, task="discs").present == ["discs"]
    with pytest.raises(UserError, match=r"me/zoo at \w+: .* cannot be reached, and what is wanted .* not in the local"):
        eftgan.load_run(NAME, task="checks")


def test_nothing_that_is_pushed_tells_of_this_machine(pushed, zoo):
    content = b"\n".join(path.encode() + b"\n" + data for path, data in pushed.files(NAME).items())
    for word in (SECRET, str(zoo.folder.path.parent), str(Path.home()), "mine.yaml", "eftgan train"):
        assert word.encode() not in content, word
    # The name of a machine may have two letters, which stand somewhere among the bytes of weights by chance.
    text = b"\n".join(re.findall(rb"[\n -~]{16,}", content)).decode()
    assert not re.search(rf"\b{re.escape(platform.node())}\b", text), platform.node()
    config = yaml.safe_load(pushed.files(NAME)["config.yaml"])
    assert (config["out"], config["start"]) == ("zoo", None)
    assert [task["data"] for task in config["tasks"]] == ["not-shared", *(f"shapes:{task}" for task in TASKS[1:])]
    facts = json.loads(pushed.files(NAME)["run.json"])
    assert {"command", "processes", "history"} & set(facts) == set()
    assert all(set(record) == {"digest"} for record in facts["data"].values())


def test_only_what_others_need_is_pushed(pushed, zoo):
    assert set(pushed.files(NAME)) == {
        *(".gitattributes", "README.md", "config.yaml", "run.json", "samples.png", "scores.jsonl"),
        *("shared.safetensors", *(f"tasks/0{i}-{task}.safetensors" for i, task in enumerate(TASKS, 1))),
    }
    for path in (zoo.folder.shared, zoo.folder.task_file(1, "stripes")):
        assert pushed.files(NAME)[path.relative_to(zoo.folder.path).as_posix()] == path.read_bytes()


def test_the_model_card_has_metadata_tables_and_a_way_to_load_one_task(pushed):
    _, metadata, text = pushed.files(NAME)["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(metadata) == {
        "library_name": "eftgan",
        "pipeline_tag": "unconditional-image-generation",
        "tags": ["continual-learning", "gan"],
        "license": "mit",
    }
    assert 'run = eftgan.load_run("me/zoo", task="checks")' in text
    assert "![Samples, one row per task](samples.png)" in text
    assert "| stripes | 2 | 02-stripes.safetensors |" in text
    assert "FD-random is a quick stand-in" in text
    assert "| Method | Task | Base | Adapters | Growth |" in text
    assert pushed.files(NAME)["samples.png"].startswith(b"\x89PNG")


def test_the_code_of_a_model_card_runs(pushed):
    code = pushed.files(NAME)["README.md"].decode().split("```python\n")[1].split("```")[0]
    names: dict = {}
    exec(code, names)
    assert names["images"].shape == (16, 3, 32, 32)


def test_a_second_push_takes_the_place_of_the_first(pushed, tiny):
    run = train_gan(tiny("method={name: finetune}"), "test")
    run.push_to_hub(NAME)
    weights = {name for name in pushed.files(NAME) if name.endswith(".safetensors")}
    assert weights == {"tasks/02-checks.safetensors"}  # whole networks: the last one serves every task
    fetched = eftgan.load_run(NAME, task="discs")
    for task in ("discs", "checks"):
        assert torch.equal(fetched.sample(task, 2), run.sample(task, 2))
    assert "license" not in pushed.files(NAME)["README.md"].decode()


def test_a_saved_folder_is_what_would_be_pushed_and_loads_alone(pushed, zoo, tmp_path):
    zoo.save_pretrained(tmp_path / "zoo", licence="mit")
    there = {path.relative_to(tmp_path / "zoo").as_posix() for path in (tmp_path / "zoo").rglob("*.*")}
    assert there == set(pushed.files(NAME)) - {".gitattributes"}
    shutil.rmtree(tmp_path / "zoo" / "state", ignore_errors=True)
    for task in ("stripes", "checks"):
        run = GanRun.from_pretrained(tmp_path / "zoo")
        assert torch.equal(run.sample(task, 2), zoo.sample(task, 2))
    for place, reason in ((tmp_path / "zoo", "not empty"), (zoo.folder.path, "the run itself")):
        with pytest.raises(UserError, match=reason):
            zoo.save_pretrained(place)


@pytest.mark.slow
def test_a_fetched_run_learns_a_further_task(pushed, tmp_path, zoo):
    shutil.copytree(eftgan.load_run(NAME).folder.path, tmp_path / "mine")
    new = "tasks+={name: more, data: 'shapes:discs', limit: 24}"
    main(["train", "gan", "--resume", str(tmp_path / "mine"), new, "evaluation={features: none}"])
    run = GanRun(tmp_path / "mine")
    assert run.present == [*TASKS, "more"]
    assert torch.equal(run.sample("discs", 2), zoo.sample("discs", 2))


def test_a_classifier_comes_back_and_a_task_of_it_alone(hub, tiny_classes):
    run = CLASSIFIERS.train(tiny_classes(), "test")
    run.push_to_hub("me/classes")
    image = torch.randint(256, (3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    fetched = ClassifierRun.from_pretrained("me/classes", task="shapes-2")
    assert [name for name in hub.downloads() if "tasks/" in name] == ["tasks/02-shapes-2.safetensors"]
    assert fetched.classify(image)[0] == "shapes-2"
    assert fetched.classify(image, "shapes-2") == run.classify(image, "shapes-2")
    assert eftgan.load_run("me/classes").classify(image) == run.classify(image)
    card = hub.files("me/classes")["README.md"].decode()
    assert ", ".join(run.classes["shapes-2"]) in card


def test_commands_take_a_run_on_the_hub(pushed, tmp_path, capsys, zoo):
    main(["sample", "hf:me/zoo", "--task", "stripes", "--n", "2", "--out", str(tmp_path / "a.png")])
    assert [name for name in pushed.downloads() if "tasks/" in name] == ["tasks/02-stripes.safetensors"]
    main(["sample", str(zoo.folder.path), "--task", "stripes", "--n", "2", "--out", str(tmp_path / "b.png")])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    capsys.readouterr()
    main(["info", "hf:me/zoo@main"])
    shown = capsys.readouterr().out
    assert "task 2   stripes" in shown
    assert "(not-shared)" in shown


def test_push_says_where_it_went_and_how_to_load_it(hub, zoo, capsys):
    main(["push", str(zoo.folder.path), "me/new", "--private"])
    shown = capsys.readouterr().out
    assert f"{hub.url}/me/new: 4 tasks" in shown
    assert 'eftgan.load_run("me/new")' in shown
    assert "--licence" in shown
    assert hub.repos["me/new"].private


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "hf:me/nobody"], "me/nobody: no such repository on http"),
        (["sample", "hf:nobody"], "give USER/NAME"),
        (["sample", "hf:me/zoo", "--task", "dogs"], "no task 'dogs' in me/zoo; it has: discs, stripes"),
        (["sample", "hf:me/zoo@v9"], "no branch, tag or commit 'v9'"),
        (["sample", "hf:me/other"], "me/other: not a run of eftgan"),
        (["classify", "hf:me/zoo", "--image", "x.png"], "hf:me/zoo is a gan run; use: eftgan sample hf:me/zoo"),
        (["push", "{run}", "nobody"], "give USER/NAME"),
        (["push", "{run}"], "give USER/NAME, or --folder"),
        (["push", "{run}", "somebody-else/zoo"], "does not let you do this"),
        (["push", "{run}", "me/zoo", "--private"], "there already and public"),
        (["push", "nowhere", "me/zoo"], "nowhere: no run there"),
    ],
)
def test_mistakes_end_with_code_2_and_one_line(pushed, zoo, words, message, capsys):
    HubRepo("me/other").push({"README.md": b"# other"}, "other")
    with pytest.raises(SystemExit) as ended:
        main([word.replace("{run}", str(zoo.folder.path)) for word in words])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_without_a_token_the_way_to_log_in_is_said(pushed, zoo, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UserError, match="log in with: hf auth login"):
        zoo.push_to_hub("me/fresh")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"me/zoo: http://127.0.0.1:9 cannot be reached"):
        zoo.push_to_hub(NAME)


def test_offline_mode_is_named(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"me/zoo.*cannot be reached.*HF_HUB_OFFLINE"):
        eftgan.load_run(NAME)
