"""ONNX files beside the networks that they were made from, in onnxruntime."""

import json
import sys

import pytest
import torch

from eftgan.adapters import using_task
from eftgan.classifier.kind import CLASSIFIERS
from eftgan.commands import main
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.gan.kind import train_gan

from ..conftest import ROOT

CLOSE = {"atol": 1e-4, "rtol": 0}


def answers(path, **inputs: torch.Tensor) -> torch.Tensor:
    """What onnxruntime computes, as a tensor."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return torch.from_numpy(found)


def metadata(path) -> dict[str, str]:
    onnx = pytest.importorskip("onnx")
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


@torch.no_grad()
def drawn(generator, task: str, z: torch.Tensor) -> torch.Tensor:
    with using_task(generator, task):
        return generator(z)[-1]


def test_a_generators_task_gives_the_same_images_at_any_batch(tiny, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    run, out = train_gan(tiny(), "test"), tmp_path / "checks.onnx"
    main(["export", str(run.folder.path), "--task", "checks", "--out", str(out)])
    assert f'InferenceSession("{out}")' in capsys.readouterr().out
    for batch in (1, 3):
        z = torch.randn(batch, 8)
        torch.testing.assert_close(answers(out, z=z), drawn(run.generator(1), "checks", z), **CLOSE)
    content = out.read_bytes()
    assert not [word for word in (str(ROOT), "site-packages", str(tmp_path)) if word.encode() in content]
    facts = metadata(out)
    assert (facts["task"], facts["kind"], facts["method"]) == ("checks", "gan", "eft")
    assert json.loads(facts["digest"]) == {
        "shared.safetensors": file_digest(run.folder.shared),
        "tasks/02-checks.safetensors": file_digest(run.folder.task_file(1, "checks")),
    }


def test_a_classifiers_tasks_are_one_graph_whose_input_is_the_tasks_number(tiny_classes, tmp_path):
    pytest.importorskip("onnxscript")
    run = CLASSIFIERS.train(tiny_classes(), "test")
    out, one = tmp_path / "all.onnx", tmp_path / "one.onnx"
    main(["export", str(run.folder.path), "--task", "all", "--out", str(out)])
    main(["export", str(run.folder.path), "--task", "shapes-2", "--out", str(one)])
    images = torch.randint(256, (3, 3, 16, 16), dtype=torch.uint8)
    network, names = run.classifier(2), metadata(out)["task"].split(",")
    for number, task in enumerate(run.tasks):
        with torch.no_grad(), using_task(network, task):
            wanted = network(run.experiment.pixels(images))
        assert names[number] == task
        torch.testing.assert_close(answers(out, images=images, task=torch.tensor(number)), wanted, **CLOSE)
        if task == "shapes-2":
            torch.testing.assert_close(answers(one, images=images), wanted, **CLOSE)
    assert json.loads(metadata(out)["classes"]) == run.classes
    assert out.stat().st_size < 2 * one.stat().st_size  # shared weights stand there once


def test_without_the_packages_the_way_to_install_them_is_said(tiny, tmp_path, monkeypatch):
    from eftgan.export.program import check_format

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r'pip install "eftgan\[onnx\]"'):
        check_format(tmp_path / "x.onnx")
