"""One task's generator as a plain PyTorch program, without any of this package's classes."""

from pathlib import Path

import torch
from torch import Tensor, nn

from eftgan.adapters import merge_task
from eftgan.errors import UserError
from eftgan.files import atomic_path
from eftgan.runs import GanRun
from eftgan.tensors import write_tensors


class FinestImage(nn.Module):
    """Noise -> the finest stage's images only."""

    def __init__(self, generator: nn.Module) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, z: Tensor) -> Tensor:
        return self.generator(z)[-1]


def export_generator(run: GanRun, task: str, out: Path) -> list[str]:
    """Write NAME.pt2 or NAME.safetensors; returns the lines that tell how to load it."""
    merged = merge_task(run.generator(len(run.trained) - 1), task)
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
        # The layers are torch's own; this text and the tensors are all that is needed to put them together.
        write_tensors(out, merged.state_dict(), {"format": "eftgan-merged-1", "task": task})
        return [
            f"{out}: tensors of the merged {task} generator. Load them into its plain network:",
            "  from safetensors.torch import load_file",
            "  from eftgan.runs import GanRun; from eftgan.adapters import merge_task",
            f'  run = GanRun("{run.folder.path}")',
            f'  generator = merge_task(run.generator({len(run.trained) - 1}), "{task}")',
            f'  generator.load_state_dict(load_file("{out}"))',
        ]
    raise UserError(f"--out {out}: name it NAME.pt2 (a whole program) or NAME.safetensors (tensors)")
