"""Whatever bytes the loaders are given, they return a right result or raise a UserError: nothing else comes out."""

import contextlib
import json
import os
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eftgan.config import apply_override, load, parse_yaml
from eftgan.data.images import decode_rgb, encode_jpeg
from eftgan.data.lmdb import LmdbImages, write_lmdb
from eftgan.errors import UserError
from eftgan.gan.experiment import GanExperiment
from eftgan.gan.run import GanRun
from eftgan.names import GENERATOR, TASK_NAME, check_task_name
from eftgan.runfolder import RunFolder
from eftgan.scores import Score, append_scores, read_scores
from eftgan.tensors import read_tensors, tensors_digest, write_tensors
from eftgan.training.checkpoint import load_state, read_task

fuzzing = settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damage(draw):
    """A function that flips bits, overwrites, cuts or inserts."""
    flips = draw(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4))
    cut = draw(st.none() | st.floats(0, 1))
    inserted = draw(st.binary(max_size=16))
    start = draw(st.floats(0, 0.1) | st.floats(0, 1))  # headers stand in front

    def apply(content: bytes) -> bytes:
        changed = bytearray(content)
        for place, value in flips:
            changed[int(place * start * len(changed))] ^= value
        place = int(start * len(changed))
        changed[place:place] = inserted
        return bytes(changed[: int(cut * len(changed))] if cut is not None else changed)

    return apply


@fuzzing
@given(harm=damage())
def test_tensor_files(tmp_path, harm):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.arange(6.0), "b": torch.ones(2, 0), "c": torch.tensor(3)}, {"k": "v"})
    path.write_bytes(harm(path.read_bytes()))
    with contextlib.suppress(UserError):
        tensors_digest(read_tensors(path)[0])


@fuzzing
@given(content=st.binary(max_size=64) | plain.map(lambda value: json.dumps(value).encode()))
def test_tensor_headers(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(content).to_bytes(8, "little") + content)
    with contextlib.suppress(UserError):
        read_tensors(path)


@fuzzing
@given(harm=damage())
def test_score_files(tmp_path, harm):
    path = tmp_path / "scores.jsonl"
    path.unlink(missing_ok=True)
    append_scores(path, [Score("run", "eft", 0, "a", "a", "FID", 1.5, 10, {"x": [1]})] * 3)
    path.write_bytes(harm(path.read_bytes()))
    with contextlib.suppress(UserError):
        assert all(isinstance(score, Score) for score in read_scores(path))


@fuzzing
@given(line=plain)
def test_score_lines(tmp_path, line):
    (tmp_path / "scores.jsonl").write_text(json.dumps(line) + "\n")
    with contextlib.suppress(UserError):
        read_scores(tmp_path / "scores.jsonl")


@fuzzing
@given(content=st.binary(max_size=80) | st.text(alphabet="{}[]:,-&*!|>'\"#\n ab1.", max_size=60).map(str.encode))
def test_config_files(tmp_path, content):
    (tmp_path / "x.yaml").write_bytes(content)
    with contextlib.suppress(UserError):
        load(GanExperiment, tmp_path / "x.yaml")


@fuzzing
@given(key=st.sampled_from(["tasks", "training", "network", "method", "seed", "out", "adapters.sizes"]), value=plain)
def test_config_values(key, value):
    tasks = "tasks=[{name: a, data: 'shapes:discs', steps: 1}]"
    with contextlib.suppress(UserError):
        load(GanExperiment, None, [tasks, f"{key}={json.dumps(value)}"])


@fuzzing
@given(word=st.text(max_size=30))
def test_config_words(word):
    data = {"tasks": [{"name": "a", "data": "shapes:discs"}], "seed": 0}
    with contextlib.suppress(UserError):
        apply_override(data, word)
    with contextlib.suppress(UserError):
        parse_yaml(word, "here")


@fuzzing
@given(name=st.text(max_size=70))
def test_task_names_are_plain_words_and_stay_in_their_folder(name):
    try:
        check_task_name(name)
    except UserError:
        return
    assert TASK_NAME.fullmatch(name)
    assert RunFolder(Path("run")).task_file(0, name).parent == Path("run/tasks")
    assert os.path.normpath(f"run/tasks/01-{name}") == f"run/tasks/01-{name}"


@fuzzing
@given(meta=plain | st.fixed_dictionaries({"format": st.just("eftgan-images"), "version": st.just(1)}, optional={
    "length": plain, "size": plain, "encoding": st.sampled_from(["raw", "jpeg", 5]), "labels": plain,
    "source": plain, "digest": plain,
}))  # fmt: skip
def test_descriptions_of_image_sets(tmp_path_factory, meta):
    folder = tmp_path_factory.mktemp("set")
    with lmdb.open(str(folder), lock=False) as store, store.begin(write=True) as transaction:
        transaction.put(b"__meta__", json.dumps(meta).encode())
    with contextlib.suppress(UserError):
        LmdbImages(folder)[0]


@fuzzing
@given(share=st.floats(0, 1, exclude_max=True))
def test_image_sets_that_were_cut(tmp_path_factory, share):
    folder = tmp_path_factory.mktemp("set") / "x.lmdb"
    write_lmdb(folder, [(np.zeros((3, 32, 32), dtype=np.uint8), None)] * 6, size=32)
    data = folder / "data.mdb"
    data.write_bytes(data.read_bytes()[: int(share * data.stat().st_size)])
    with pytest.raises(UserError):
        LmdbImages(folder)[5]


@fuzzing
@given(harm=damage(), kind=st.sampled_from(["jpeg", "garbage"]))
def test_stored_pictures(tmp_path_factory, harm, kind):
    folder = tmp_path_factory.mktemp("set") / "x.lmdb"
    content = encode_jpeg(np.arange(3 * 32 * 32, dtype=np.uint8).reshape(3, 32, 32)) if kind == "jpeg" else b"x" * 99
    write_lmdb(folder, [(harm(content), None)] * 2, size=32, encoding="jpeg")
    with contextlib.suppress(UserError):
        assert LmdbImages(folder)[1].shape == (3, 32, 32)


@fuzzing
@given(harm=damage())
def test_pictures_raise_nothing_that_data_preparation_would_not_count(harm):
    with contextlib.suppress(Exception):
        assert decode_rgb(harm(encode_jpeg(np.zeros((3, 32, 32), dtype=np.uint8)))).mode == "RGB"


@settings(fuzzing, max_examples=15)
@given(harm=damage())
def test_task_files(trained, tmp_path_factory, harm):
    place = tmp_path_factory.mktemp("tasks")
    run, folder = GanRun(trained), RunFolder(place)
    (place / "tasks").mkdir()
    folder.task_file(0, "discs").write_bytes(harm((trained / "tasks/01-discs.safetensors").read_bytes()))
    empty = run.generator(-1)
    with contextlib.suppress(UserError):
        read_task(folder, 0, "discs", GENERATOR, empty)
        whole = run.generator(0)
        assert all(torch.equal(empty.state_dict()[key], tensor) for key, tensor in whole.state_dict().items())


@pytest.mark.filterwarnings("ignore:skipped a damaged resume state")
@settings(fuzzing, max_examples=15)
@given(harm=damage())
def test_states(trained, tmp_path_factory, harm):
    place = tmp_path_factory.mktemp("states")
    whole = load_state(RunFolder(trained))
    (place / "state").mkdir()
    path = RunFolder(trained).state_files()[-1]
    (place / "state" / path.name).write_bytes(harm(path.read_bytes()))
    with contextlib.suppress(UserError):
        tensors, facts = load_state(RunFolder(place))
        assert facts == whole[1]
        assert tensors_digest(tensors) == tensors_digest(whole[0])
