"""How training meets Accelerate."""

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import GradientAccumulationPlugin, InitProcessGroupKwargs
from torch import distributed, nn

from eftgan.data.processes import Processes
from eftgan.errors import UserError

PATIENCE = timedelta(hours=12)  # how long processes wait for the first one, which measures after every task


def make_accelerator(
    folder: Path, *, accumulation: int = 1, mixed_precision: str = "no", log_with: Sequence[str] = ()
) -> Accelerator:
    """Accelerate as the trainers need it, refusing what would go wrong silently."""
    # PyTorch advises to keep the argument where buffers are each process's own: the new one would equal them at first.
    warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != mixed_precision:
        AcceleratorState._reset_state()  # of an earlier run of this process: Accelerate would refuse another precision
    try:
        accelerator = Accelerator(
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=accumulation, sync_with_dataloader=False),
            cpu=_on_cpu(),
            mixed_precision=mixed_precision,
            log_with=list(log_with) or None,
            project_dir=str(folder / "trackers"),
            # Running statistics are each process's own; broadcasting them would break the two forwards of a step.
            kwargs_handlers=[
                DistributedDataParallelKwargs(broadcast_buffers=False),
                InitProcessGroupKwargs(timeout=PATIENCE),
            ],
        )
    except (ValueError, ImportError) as error:
        raise UserError(f"training.mixed_precision or log_with: {error}") from error
    missing = [name for name in log_with if name not in ("all", *map(str, accelerator.log_with))]
    if missing:
        raise UserError(f"log_with: {missing[0]} is not installed; pip install {missing[0].replace('_', '-')}")
    asked = int(os.environ.get("WORLD_SIZE", "1"))
    if accelerator.num_processes != asked:
        raise UserError(f"{asked} processes were asked for, but Accelerate runs {accelerator.num_processes}")
    return accelerator


def _on_cpu() -> bool:
    return not torch.accelerator.is_available()  # unsaid, torchrun without GPUs would run one process


def meet() -> Processes:
    """Bring the processes together that a launcher started, before anything that could go wrong in one of them."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        PartialState(cpu=_on_cpu(), timeout=PATIENCE)
    return Processes.present()


def part() -> None:
    """The processes that were brought together go their ways, at the end of a program that went well."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def refuse_single_images(batch: int, networks: Mapping[str, nn.Module]) -> None:
    """BatchNorm compares the images of a process's batch, so that one image is none too many but one too few."""
    normed = [
        role
        for role, network in networks.items()
        if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())
    ]
    if batch == 1 and normed:
        raise UserError(
            f"training.batch=1: the {normed[0]}'s BatchNorm needs at least 2 images in each process; set "
            "training.batch=2 or more"
        )
