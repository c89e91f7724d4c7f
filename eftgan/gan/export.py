"""One task's generator as a plain PyTorch program, without any of this package's classes."""

import dataclasses
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, add_task, insert_adapters, merge_task
from eftgan.config import build, plain
from eftgan.errors import UserError
from eftgan.files import atomic_path
from eftgan.gan.run import GanRun
from eftgan.models.gans import GANS
from eftgan.names import GENERATOR
from eftgan.tensors import read_tensors, write_tensors
from eftgan.training.experiment import Adapters

FORMAT = "eftgan-merged-1"


class FinestImage(nn.Module):
    """Noise -> the finest stage's images only."""

    def __init__(self, generator: nn.Module) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, z: Tensor) -> Tensor:
        return self.generator(z)[-1]


def export_generator(run: GanRun, task: str, out: Path) -> list[str]:
    """Write NAME.pt2 or NAME.safetensors; returns the lines that tell how to load it."""
    merged = merge_task(run.generator(len(run.trained) - 1, [task]), task)
    z_dim = run.experiment.network.z_dim
    if out.suffix == ".pt2":
        batch = torch.export.Dim("batch", min=1)
        program = torch.export.export(FinestImage(merged), (torch.zeros(2, z_dim),), dynamic_shapes=({0: batch},))
        with atomic_path(out) as temporary:
            # torch.export.save asks for its own file ending
            whole = temporary.with_suffix(".pt2")
            torch.export.save(program, whole)
            whole.replace(temporary)
        return [
            f"{out}: noise (B, {z_dim}) -> {task} images (B, 3, S, S) in [-1, 1]. Load it with torch alone:",
            "  import torch",
            f'  generate = torch.export.load("{out}").module()',
            f"  images = generate(torch.randn(16, {z_dim}))",
        ]
    if out.suffix == ".safetensors":
        banks = run.experiment.method.banks(GENERATOR, run.experiment.adapters.config())
        config = {"network": plain(run.experiment.network), "banks": dataclasses.asdict(banks)}
        write_tensors(out, merged.state_dict(), {"format": FORMAT, "task": task, "config": json.dumps(config)})
        return [
            f"{out}: tensors of the merged {task} generator. Load it with:",
            "  from eftgan import load_generator",
            f'  generator = load_generator("{out}")',
            f"  images = generator(torch.randn(16, {z_dim}))[-1]",
        ]
    raise UserError(f"--out {out}: name it NAME.pt2 (a whole program) or NAME.safetensors (tensors)")


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
