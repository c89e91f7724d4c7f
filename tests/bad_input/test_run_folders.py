"""Run folders whose files were damaged, mixed up or made by somebody else."""

import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from eftgan.runfolder import RunFolder
from eftgan.tensors import read_tensors, tensors_digest, write_tensors
from eftgan.training.checkpoint import load_state, save_state

SAMPLE = ["sample", "run", "--out", "x.png"]


def header(content: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of any header."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(shape: list[int], start: int, end: int) -> dict:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}


HOSTILE = {
    "empty": b"",
    "a huge length": header(b"{}", length=2**62),
    "a length past the end": header(b"{}", length=100),
    "no JSON": header(b"not JSON"),
    "no mapping": header([1, 2]),
    "deep JSON": header(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "overlapping tensors": header({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)),
    "a tensor past the end": header({"a": entry([2**40], 0, 2**42)}, bytes(8)),
    "a shape that overflows": header({"a": entry([2**32, 2**32, 4], 0, 8)}, bytes(8)),
    "a negative offset": header({"a": entry([2], -8, 0)}, bytes(8)),
    "an unknown type": header({"a": {"dtype": "PICKLE", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)),
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("file", ["tasks/01-discs.safetensors", "shared.safetensors"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_tensor_file_is_refused(call, run, file, kind):
    (run / file).write_bytes(HOSTILE[kind])
    call.refuses(file, "eftgan", *SAMPLE)


@pytest.mark.filterwarnings("ignore:skipped a damaged resume state")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_states_are_passed_over_and_without_a_whole_one_refused(call, run, kind):
    for state in RunFolder(run).state_files():
        state.write_bytes(HOSTILE[kind])
    call.train("none of the resume states is whole")


def rewrite(path: Path, change) -> None:
    """Write a task file again, well formed and with its digest right, with other content."""
    tensors, facts = read_tensors(path)
    change(tensors, facts)
    write_tensors(path, tensors, {**facts, "digest": tensors_digest(tensors)})


def own_tensor(tensors: dict) -> str:
    return next(key for key in tensors if key.startswith("generator/"))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, facts: facts.update(format="other-1"),
        lambda tensors, facts: facts.pop("kind"),
        lambda tensors, facts: facts.update(bases="nonsense"),
        lambda tensors, facts: facts.update(bases='{"generator": "abc"}'),
        lambda tensors, facts: facts.update(bases="[]"),
        lambda tensors, facts: facts.update(kind="full"),
        lambda tensors, facts: facts.update(kind="full", layout="{}"),
        lambda tensors, facts: facts.update(kind="full", layout='{"rows": {"../x": {}}, "heads": {}, "made": 1}'),
        lambda tensors, facts: tensors.pop(own_tensor(tensors)),
        lambda tensors, facts: tensors.update({"generator/further": torch.ones(1)}),
        lambda tensors, facts: tensors.update({own_tensor(tensors): torch.ones(1, 2, 3)}),
    ],
)
def test_a_task_file_that_does_not_fit_is_refused(call, run, change):
    rewrite(run / "tasks/01-discs.safetensors", change)
    call.refuses("tasks/01-discs.safetensors", "eftgan", *SAMPLE)


def test_a_task_file_copied_over_another_is_refused(call, run):
    (run / "tasks/01-discs.safetensors").write_bytes((run / "tasks/02-checks.safetensors").read_bytes())
    call.refuses("01-discs.safetensors: holds task 'checks', not 'discs'; put the right file back", "eftgan", *SAMPLE)


def test_a_flipped_bit_in_a_task_file_is_noticed(call, run):
    path = run / "tasks/01-discs.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    call.refuses("does not match its digest", "eftgan", *SAMPLE)


def change_state(run: Path, change) -> None:
    """The newest state again, with its digest right and its content changed."""
    folder = RunFolder(run)
    tensors, facts = load_state(folder)
    number = int(folder.state_files()[-1].stem)
    facts = change(tensors, facts) or facts
    save_state(folder, number, tensors, facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, facts: ["nonsense"], "of another experiment"),
        (lambda tensors, facts: {"progress": {}}, "of another experiment"),
        (lambda tensors, facts: facts.update(filed={}), "of another experiment"),
        (lambda tensors, facts: facts["filed"].update(roles=["nobody"]), "of another experiment"),
        (lambda tensors, facts: facts.pop("filed") is None, "of another experiment"),
        (lambda tensors, facts: facts["progress"].update(further=1), "of another experiment"),
        (lambda tensors, facts: facts["progress"].update(task=1), "do not lead there"),
        (lambda tensors, facts: facts["progress"].update(task=9), "do not lead there"),
        (lambda tensors, facts: facts["progress"].update(step=1), "do not lead there"),
        (lambda tensors, facts: facts["progress"].update(step="1"), "of another experiment"),
    ],
)
def test_a_state_of_something_else_is_refused(call, run, change, message):
    change_state(run, change)
    call.train(message)


def test_a_state_that_names_other_tasks_is_refused(call, run):
    change_state(run, lambda tensors, facts: facts["filed"].update(tasks={"discs": 0, "dogs": 1}))
    call.train("02-dogs.safetensors: no such file")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps: 2", "steps: 3", "training.steps=3"),
        ("seed: 0", "seed: 1", "seed=1"),
        ("ngf: 4", "ngf: 8", "network.ngf=8"),
        ("name: discs", "name: dogs", "tasks.0.name"),
        ("seed: 0", "seed: !!python/name:os.system", "not plain YAML"),
        ("seed: 0", "sede: 0", "did you mean seed"),
    ],
)
def test_an_edited_config_is_noticed(call, run, old, new, message):
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new))
    call.train(message)


def test_a_config_edited_beyond_its_state_is_refused_when_resumed(call, run):
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("ngf: 4", "ngf: 8"))
    call.refuses("shared.safetensors: does not fit this run", "train_gan.py", "--resume", "run")


@pytest.mark.parametrize("line", ["garbage", "[]", "{}", '{"run": 5}', "NaN", '"' * 5, "\\ud800", "[" * 5000])
@pytest.mark.parametrize("words", [["info", "run"], ["report", "run"], ["evaluate", "run", "--features", "random"]])
def test_a_garbage_score_line_is_named_by_its_number(call, run, line, words):
    before = (run / "scores.jsonl").read_text()
    (run / "scores.jsonl").write_text(f"{before}{line}\n{before}")
    call.refuses(f"scores.jsonl, line {before.count(chr(10)) + 1}", "eftgan", *words)


@pytest.mark.parametrize("content", ["garbage", "[]", '{"tasks": 5}', '{"tasks": [1]}', "[" * 5000])
def test_garbage_facts_are_refused_by_the_report(call, run, content):
    (run / "run.json").write_text(content)
    call.refuses("run.json", "eftgan", "report", "run")


@pytest.mark.parametrize("name", ["config.yaml", "tasks/01-discs.safetensors", "tasks/02-checks.safetensors"])
def test_a_missing_file_is_named(call, run, name):
    (run / name).unlink()
    missing = Path(name).name.split("-")[-1].split(".")[0]
    call.refuses(missing, "eftgan", "sample", "run", "--task", "checks" if missing == "config" else missing)


def test_a_folder_in_work_is_refused(call, run):
    with RunFolder(run).locked(), warnings.catch_warnings():
        call.train("another process")
        call.refuses("another process", "eftgan", "evaluate", "run", "--features", "random")


@pytest.mark.parametrize("name", ["state", "tasks", "samples", "scores.jsonl"])
def test_a_file_in_the_place_of_a_folder_or_the_other_way_round_is_refused(call, run, name):
    if (run / name).is_dir():
        shutil.rmtree(run / name)
        (run / name).write_text("in the way")
    else:
        (run / name).unlink()
        (run / name).mkdir()
    call.train(name)
