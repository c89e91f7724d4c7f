"""A task's generator, or all of them, as a program without any of this package's classes."""

import dataclasses
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, add_task, inference_network, insert_adapters, merge_task
from eftgan.adapters.by_number import ByNumber
from eftgan.config import build, plain
from eftgan.errors import UserError
from eftgan.export.program import EVERY_TASK, check_format, task_program
from eftgan.gan.run import GanRun
from eftgan.models.gans import GANS
from eftgan.names import GENERATOR
from eftgan.tensors import read_tensors, write_tensors
from eftgan.training.experiment import Adapters

FORMAT, TENSORS = "eftgan-merged-1", ".safetensors"


class FinestImage(nn.Module):
    """Noise -> the finest stage's images only."""

    def __init__(self, generator: nn.Module) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, z: Tensor, task: Tensor | None = None) -> Tensor:
        return (self.generator(z) if task is None else self.generator(z, task))[-1]


def export_generator(run: GanRun, task: str, out: Path) -> list[str]:
    """Write NAME.pt2, NAME.onnx or NAME.safetensors; returns the lines that tell how to use it.

    task: a name, or all (a program alone): the number of the task is an input then.
    """
    check_format(out, TENSORS)
    z_dim = run.experiment.network.z_dim
    if out.suffix == TENSORS:
        if task == EVERY_TASK:
            raise UserError(f"--task all --out {out}: tensors are of one task; name it NAME.onnx or NAME.pt2")
        return _write_merged(run, task, out)
    tasks = run.present if task == EVERY_TASK else [task]
    generator = run.generator(len(run.trained) - 1, tasks)
    network = ByNumber(generator, tasks) if task == EVERY_TASK else inference_network(generator, task)
    program = task_program(
        FinestImage(network), {"z": torch.zeros(2, z_dim)}, "images", run.origin(tasks), numbered=task == EVERY_TASK
    )
    program.write(out)
    return [
        f"{out}: noise (B, {z_dim}) -> {', '.join(tasks)} images (B, 3, S, S) in [-1, 1]. Use it with:",
        *program.usage(out, {"z": f"torch.randn(16, {z_dim})"}),
    ]


def _write_merged(run: GanRun, task: str, out: Path) -> list[str]:
    merged = merge_task(run.generator(len(run.trained) - 1, [task]), task)
    banks = run.experiment.method.banks(GENERATOR, run.experiment.adapters.config())
    config = {"network": plain(run.experiment.network), "banks": dataclasses.asdict(banks)}
    write_tensors(out, merged.state_dict(), {"format": FORMAT, "task": task, "config": json.dumps(config)})
    return [
        f"{out}: tensors of the merged {task} generator. Load it with:",
        "  from eftgan import load_generator",
        f'  generator = load_generator("{out}")',
        f"  images = generator(torch.randn(16, {run.experiment.network.z_dim}))[-1]",
    ]


def load_generator(path: str | Path) -> nn.Module:
    """A merged generator from the safetensors file that `eftgan export` wrote.

    Args:
        path: `NAME.safetensors` of `eftgan export RUN --task TASK --out NAME.safetensors`.

    Returns:
        A network in eval mode: noise (B, z_dim) -> a list of images (B, 3, S, S) in [-1, 1], coarse to fine.
    """
    tensors, facts = read_tensors(path)
    if facts.get("format") != FORMAT:
        raise UserError(f"{path}: not an exported generator (format {facts.get('format')!r})")
    config = json.loads(facts["config"])
    family = GANS[config["network"].get("name", "stackgan")]
    generator = build(family, config["network"], str(path)).generator()
    if "banks" in config:
        banks = build(AdapterConfig, config["banks"], str(path))
    else:  # written by earlier versions, which exported EFT alone
        banks = build(Adapters, config["adapters"], str(path)).config()
    insert_adapters(generator, banks)
    add_task(generator, facts["task"])
    merged = merge_task(generator, facts["task"])
    merged.load_state_dict(tensors)
    return merged
