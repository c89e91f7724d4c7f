"""Made-up runs in the layout that training writes: the figures of the paper's GAN table."""

import json
from pathlib import Path

import pytest
from PIL import Image

from eftgan.scores import Score, append_scores

TASKS = ["cats", "birds", "churches", "towers"]
PAPER = {  # FID by task, from when it was learned on
    "finetune": [[29.0, 156.9, 189.6, 182.8], [21.2, 174.5, 161.5], [11.4, 48.0], [12.7]],
    "eft": [[29.0] * 4, [44.1] * 3, [32.3] * 2, [27.2]],
}
COLOURS = [(196, 140, 90), (90, 150, 190), (150, 150, 150), (110, 160, 100)]


@pytest.fixture(name="make_run")
def _make_run():
    return make_run


@pytest.fixture(name="make_classifier_run")
def _make_classifier_run():
    return make_classifier_run


@pytest.fixture
def paper():
    return PAPER


def make_run(
    folder: Path,
    method: str = "eft",
    *,
    seed: int = 0,
    metric: str = "FID",
    samples: bool = False,
    n: int = 5000,
    config: str = "",
) -> Path:
    """A finished run; its figures are the paper's, shifted a little by the seed. `config`: further lines of its."""
    info = {
        "name": folder.name,
        "kind": "gan",
        "method": method,
        "seed": seed,
        "tasks": TASKS,
        "command": f"accelerate launch train_gan.py --config configs/gan/{method}.yaml seed={seed}",
        "versions": {"python": "3.11.9", "torch": "2.15.0"},
    }
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "config.yaml").write_text(f"method: {{name: {method}}}\nseed: {seed}\n{config}")
    append_scores(folder / "scores.jsonl", gan_scores(folder.name, method, seed, metric, n))
    if samples:
        make_samples(folder, forgets=method == "finetune")
    return folder


def gan_scores(run: str, method: str, seed: int, metric: str, n: int) -> list[Score]:
    scores = []
    for on, row in enumerate(PAPER[method]):
        for step, value in enumerate(row):
            details = {"extractor": "inception-2015-12-05", "reference": f"ref-{on}", "resize": "bilinear 299"}
            details["carried"] = method == "eft" and step > 0
            key = (run, method, seed, TASKS[on + step], TASKS[on])
            scores.append(Score(*key, metric, value + seed * 1.5, n, details))
            kernel = {"FID": "KID", "FD-random": "KID-random"}[metric]
            scores.append(Score(*key, kernel, value / 1000, n, details | {"std": 0.0021}))
    for i, task in enumerate(TASKS):
        adapters, norm, head = (881376, 15104, 8193) if method == "eft" else (0, 0, 0)
        details = {"base_parameters": 18647233, "adapter_parameters": adapters, "norm_parameters": norm}
        details |= {"head_parameters": head, "flops_base": 4.1e9, "flops_task": 4.1e9 * (1.09 if adapters else 1)}
        details |= {"flops_executed": 4.1e9 * (1.07 if adapters else 1), "bytes_shared": 74_600_000}
        details |= {"bytes_task": adapters * 4 + 92_000}
        scores.append(Score(run, method, seed, task, TASKS[i], "growth", adapters / 18647233, 1, details))
    return scores


def make_samples(folder: Path, *, forgets: bool) -> None:
    for on, task in enumerate(TASKS):
        name = f"{on + 1:02d}-{task}.png"
        _grid(folder / "samples/real" / name, COLOURS[on], 0)
        for after in range(on, len(TASKS)):
            shown = after if forgets else on
            _grid(folder / f"samples/after-{after + 1:02d}-{TASKS[after]}" / name, COLOURS[shown], 1 + on)


def _grid(path: Path, colour: tuple[int, int, int], salt: int, side: int = 16, count: int = 4) -> None:
    image = Image.new("RGB", (side * count, side * count))
    for i in range(count * count):
        shift = (i * 37 + salt * 11) % 60 - 30
        tile = Image.radial_gradient("L").resize((side, side)).point(lambda v, s=shift: max(0, 255 - v + s))
        solid = Image.new("RGB", (side, side), colour)
        box = (i % count * side, i // count * side)
        image.paste(Image.composite(solid, Image.new("RGB", (side, side), (30, 30, 40)), tile), box)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def make_classifier_run(folder: Path, method: str, seed: int, tasks: int = 10) -> Path:
    """A made-up class-incremental run; its task order is known from the score lines alone."""
    names = [f"task-{i + 1:02d}" for i in range(tasks)]
    loss = {"eft": 0.012, "finetune": 0.09, "separate": 0.0}[method]
    alone = 0.03 if method == "separate" else 0.0  # learns less well with nothing to build on
    scores = []
    for after in range(tasks):
        for on in range(after + 1):
            value = max(0.02, 0.82 - 0.01 * on - loss * (after - on) - 0.004 * seed - alone)
            key = (folder.name, method, seed, names[after], names[on])
            scores.append(Score(*key, "accuracy-CIL", value, 1000))
            scores.append(Score(*key, "accuracy-TIL", min(0.99, value + 0.1), 1000))
    append_scores(folder / "scores.jsonl", scores)
    return folder
