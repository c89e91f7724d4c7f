"""Runs whose tasks have columns, units or networks of their own: read back, asked, counted, exported where they can."""

import pytest
import torch
from torch import nn

from eftgan.adapters.taskfile import read_task_file
from eftgan.classifier.kind import train_classifier
from eftgan.classifier.run import ClassifierRun
from eftgan.commands import main
from eftgan.evaluation.accuracy import TIL, accuracy_matrix
from eftgan.models.classifiers import CLASSIFIERS
from eftgan.scores import read_scores

WORDS = {
    "pnn": "method={name: pnn, width: 0.5}",
    "rcl": "method={name: rcl, trials: 2, most: [3]}",
    "den": "method={name: den, units: [2], drift: 0, loss_threshold: 0}",
    "side": "method={name: side, widths: [4, 4]}",
}
BUFFERS = ("running_mean", "running_var", "num_batches_tracked", "earlier")  # in a file, but not parameters


def small_chain(classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(128, 12), nn.ReLU(), nn.Linear(12, classes),
    )  # fmt: skip


@pytest.fixture(params=WORDS)
def run(request, tiny_classes, monkeypatch) -> ClassifierRun:
    monkeypatch.setitem(CLASSIFIERS, "small_chain", small_chain)
    words = ("network={name: small_chain, size: 16}", WORDS[request.param], "training.first.learning_rate=0.02")
    return train_classifier(tiny_classes(*words), "test")


def test_tasks_are_kept_counted_asked_and_refused_by_export_where_no_plain_network_computes_them(run, tmp_path, capsys):
    name, scores = run.experiment.method.name, read_scores(run.folder.scores)
    matrix = accuracy_matrix(scores, run.tasks, TIL)
    assert name == "den" or matrix[0, 0] == matrix[1, 0] == matrix[2, 0]
    network, image = run.classifier(2), torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8)
    for index, line in enumerate(score for score in scores if score.metric == "growth"):
        path = run.folder.task_file(index, run.tasks[index])
        (state,) = read_task_file(path).states.values()
        parameters = sum(line.details[f"{part}_parameters"] for part in ("adapter", "norm", "head"))
        facts = [t for key, t in state.items() if key.rpartition(".")[2] in BUFFERS]
        assert name == "den" or sum(t.numel() for t in state.values()) == parameters + sum(t.numel() for t in facts)
        assert line.details["bytes_task"] == path.stat().st_size
    for task in run.tasks:
        inferred, ranked = run.classify(image, task)
        assert inferred == task
        assert sum(share for _, share in ranked) == pytest.approx(1)
    assert run.classify(image)[0] in run.tasks
    asked = [run.classify(image, task)[1] for task in run.tasks]
    assert [answer.ranked for answer in run.answers(image, network, run.tasks)[0]] == asked
    if name not in ("rcl", "den"):
        with pytest.raises(SystemExit) as ended:
            main(["export", str(run.folder.path), "--task", run.tasks[1], "--out", str(tmp_path / "x.pt2")])
        assert ended.value.code == 2
        assert "cannot be exported as one network" in capsys.readouterr().err


@pytest.mark.slow
def test_a_task_with_units_of_its_own_is_exported_as_the_network_that_it_is(tiny_classes, monkeypatch, tmp_path):
    monkeypatch.setitem(CLASSIFIERS, "small_chain", small_chain)
    run = train_classifier(tiny_classes("network={name: small_chain, size: 16}", WORDS["rcl"]), "test")
    out = tmp_path / "second.pt2"
    main(["export", str(run.folder.path), "--task", run.tasks[1], "--out", str(out)])
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    logits = torch.export.load(out).module()(images)
    ranked = run.classify(images[0], run.tasks[1])[1]
    assert sorted(logits[0].softmax(0).tolist()) == pytest.approx(sorted(share for _, share in ranked), abs=1e-5)
