"""Latent tools: the strength of a task, mixes of tasks, and ways from noise to noise and from task to task."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from eftgan.adapters import BASE, Shares, inference_network, mixed_network, named_banks
from eftgan.adapters.config import Part
from eftgan.adapters.mixing import between, lone_task
from eftgan.errors import UserError
from eftgan.gan.run import GanRun
from eftgan.gan.sampling import generate
from eftgan.names import GENERATOR
from eftgan.progress import progress_bar


@dataclass(frozen=True)
class Subject:
    """What images show: a mix of tasks, or several to go through with the same noise."""

    noise: str  # the task whose noise they are drawn from: a strength or a mix does not change it
    stops: tuple[Shares, ...]


def of_task(task: str) -> Subject:
    """A task as it is."""
    return Subject(task, ({task: 1.0},))


def owned_parts(run: GanRun) -> list[Part]:
    """The parts of the generator of which every task has its own; a UserError where there are none."""
    parts = list(run.experiment.method.owned_by_tasks(GENERATOR))
    if not parts:
        raise UserError(
            f"{run.folder.path}: {run.experiment.method.title} gives tasks nothing of their own in the generator, so "
            "there is no strength, and nothing to mix; take a run of a method that does, such as eft"
        )
    return parts


def network_of(run: GanRun, generator: nn.Module, shares: Shares) -> nn.Module:
    """The network that draws a mix of a run's tasks; of one task alone, the one that always does."""
    if (task := lone_task(shares)) is not None:
        return inference_network(generator, task)
    return mixed_network(generator, shares, owned_parts(run), trained=_came_trained(generator))


def _came_trained(generator: nn.Module) -> bool:
    """Whether the base is one that others had trained: its own normalisation has statistics then.

    A base that the first task trained has none: every task normalises by itself.
    """
    norms = (bank.layer for _, bank in named_banks(generator) if isinstance(bank.layer, _BatchNorm))
    return any(norm.running_mean is not None and bool(norm.running_mean.any()) for norm in norms)


def tasks_drawn(run: GanRun, subjects: Iterable[Subject]) -> list[str]:
    """The tasks whose files are needed: the base has the normalisation of the first one."""
    named = {name for subject in subjects for shares in subject.stops for name in shares}
    return [task for place, task in enumerate(run.tasks) if task in named or (place == 0 and BASE in named)]


def draw_frames(
    run: GanRun,
    generator: nn.Module,
    subject: Subject,
    count: int,
    seed: int,
    *,
    truncation: float | None = None,
    steps: int | None = None,
    show: bool = True,
) -> Tensor:
    """Images (frames, count, 3, S, S), uint8: one frame, or with `steps` a way.

    A subject of one stop goes from noise to noise in that many frames; one of several goes from stop to stop with the
    same noise, in that many frames each, the stops between two ways being shared.
    """
    z = run.noise(subject.noise, count, seed, truncation)
    if len(subject.stops) == 1:
        network = network_of(run, generator, subject.stops[0])
        end = run.noise(subject.noise, count, seed, truncation, use="sample end")
        ways = [z] if steps is None else between_noises(z, end, steps)
        drawn = torch.cat(list(generate(network, torch.cat(ways))))
        return drawn.unflatten(0, (len(ways), count))
    mixes = progress_bar(between_stops(subject.stops, steps or 2), desc="mixing", leave=False, show=show)
    networks = (network_of(run, generator, shares) for shares in mixes)
    return torch.stack([torch.cat(list(generate(network, z))) for network in networks])


def between_noises(start: Tensor, end: Tensor, steps: int) -> list[Tensor]:
    """From noise to noise (N, Z) along great circles: on straight lines noise would be too small in the middle."""
    cosine = F.cosine_similarity(start, end)[:, None].clamp(-1 + 1e-6, 1 - 1e-6)
    angle = cosine.acos()
    inner = [
        (torch.sin((1 - way) * angle) * start + torch.sin(way * angle) * end) / torch.sin(angle)
        for way in torch.linspace(0, 1, steps)[1:-1]
    ]
    return [start, *inner, end]


def between_stops(stops: Sequence[Shares], steps: int) -> list[Shares]:
    """From mix to mix, `steps` each; a stop between two ways comes once."""
    mixes: list[Shares] = [stops[0]]
    for start, end in itertools.pairwise(stops):
        mixes += [between(start, end, index / (steps - 1)) for index in range(1, steps)]
    return mixes
