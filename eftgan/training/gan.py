"""Continual GAN training: one readable loop over Accelerate.

Per task: grow the networks -> freeze -> optimizers over what is trainable -> prepare -> train -> the EMA weights
become the generator -> the method remembers -> verify that nothing frozen moved -> save.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from accelerate import Accelerator
from pydantic import Field
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from typing_extensions import Doc

from eftgan.adapters import select_task
from eftgan.config import Count, Positive, Share
from eftgan.data.grid import save_grid
from eftgan.data.sampler import StepBatches
from eftgan.data.streams import stream, stream_seed
from eftgan.data.transforms import multiscale, random_crop_flip, to_uint8
from eftgan.errors import UserError
from eftgan.methods import Batch, Method, Probe
from eftgan.methods.base import seen_tasks
from eftgan.progress import progress_bar
from eftgan.tensors import tensors_digest
from eftgan.training.checkpoint import (
    Progress,
    RunFolder,
    below,
    restore_networks,
    restore_optimizers,
    save_training,
    write_task,
)
from eftgan.training.diffaugment import diff_augment
from eftgan.training.ema import Ema
from eftgan.training.gan_probe import gan_probe
from eftgan.training.losses import colour_consistency, discriminator_loss, generator_loss
from eftgan.training.sampling import evaluating, fixed_noise
from eftgan.training.stopping import Stopped, StopSignal

GENERATOR = "generator"
Optimizers = dict[str, torch.optim.Optimizer]


@dataclass(frozen=True)
class GanTraining:
    """How every task is trained."""

    batch: Annotated[Count, Doc("images per step and process")] = 24
    steps: Annotated[Count | None, Doc("optimizer steps per task")] = None
    epochs: Annotated[Positive | None, Doc("passes over a task's images, where steps is not given")] = None
    learning_rate: Annotated[Positive, Doc("of Adam, for generator and discriminators")] = 2e-4
    betas: Annotated[tuple[Share, Share], Doc("of Adam")] = (0.5, 0.999)
    ema_decay: Annotated[Share, Doc("of the averaged generator that samples come from")] = 0.999
    accumulation: Annotated[Count, Doc("batches per optimizer step")] = 1
    mixed_precision: Annotated[Literal["no", "fp16", "bf16"], Doc("where the device has it")] = "no"
    sync_batchnorm: Annotated[bool, Doc("BatchNorm over the batches of all processes (GPUs only)")] = False
    diffaugment: Annotated[
        tuple[Literal["color", "translation", "cutout"], ...], Doc("augmentations; [] is off")
    ] = ()
    workers: Annotated[int, Field(ge=0, le=64), Doc("loader processes")] = 0
    log_every_steps: Annotated[Count, Doc("how often losses are shown and sent to the trackers")] = 10
    snapshot_every_steps: Annotated[
        int, Field(ge=0), Doc("how often sample grids are drawn; 0: at the end only")
    ] = 0
    save_every_steps: Annotated[
        int, Field(ge=0), Doc("how often the resume state is written; 0: after tasks only")
    ] = 500


@dataclass(frozen=True)
class GanTask:
    """One collection to learn: its name, its images, how long, and where its transforms start."""

    name: str
    images: Dataset
    steps: int
    init: str | None = None


@dataclass
class GanTrainer:
    """Trains a generator and its discriminators on one task after another."""

    accelerator: Accelerator
    networks: dict[str, nn.Module]  # "generator", then "discriminator32" and so on, coarse to fine
    method: Method
    options: GanTraining
    sizes: list[int]
    z_dim: int
    seed: int
    folder: RunFolder
    start: RunFolder | None = None  # a run whose first task is taken over
    after_task: Callable[[int], None] = lambda index: None
    progress: Progress = field(default_factory=Progress)

    @property
    def discriminators(self) -> list[str]:
        return [role for role in self.networks if role != GENERATOR]

    def run(self, tasks: list[GanTask]) -> None:
        """Train every task that is not done yet, and call `after_task` for each one that is."""
        self.progress, resumed = restore_networks(self.folder, self.networks, self.method)
        self._check_progress(tasks)
        for network in self.networks.values():
            network.to(self.accelerator.device)
        with StopSignal(self.accelerator) as self._stop:
            for index, task in enumerate(tasks):
                if index == self.progress.task:
                    if self.start and index == 0 and resumed is None:
                        self._take_over_first_task(task)
                    else:
                        self._train_task(index, task, resumed)
                with self._stop.at_once(f"stopped after task {task.name!r}; its files are whole"):
                    self.after_task(index)

    def _check_progress(self, tasks: list[GanTask]) -> None:
        """Refuse a state that these tasks did not lead to."""
        done, step = self.progress.task, self.progress.step
        seen, names = seen_tasks(self.networks), [task.name for task in tasks]
        begun = done + (step > 0)
        if len(seen) != begun or seen != names[:begun] or (step > 0 and step >= tasks[done].steps):
            raise UserError(
                f"{self.folder.path / 'state'}: the resume state stands at step {step} after {done} tasks and "
                f"knows {', '.join(seen) or 'no task'}; these tasks and steps do not lead there. Was config.yaml "
                "changed?"
            )
        for path in (self.folder.task_file(index, name) for index, name in enumerate(names[:done])):
            if not path.is_file():
                raise UserError(f"{path} is missing, though the task is done; put it back, or remove the run folder")

    def _train_task(self, index: int, task: GanTask, resumed: dict[str, Tensor] | None) -> None:
        fresh = self.progress.step == 0
        if fresh:
            torch.manual_seed(stream_seed(self.seed, task.name, "init"))
            self.method.grow(self.networks, task.name, init=task.init)
        for network in self.networks.values():
            select_task(network, task.name)
            network.train()
        trainable = self.method.trainable(self.networks, task.name)
        # Listed once: a walk over all tasks' parameters at every step would cost more with every task.
        self._discriminating = [p for role in self.discriminators for p in trainable[role]]
        frozen = tensors_digest(self.method.frozen(self.networks, task.name))
        ema = Ema(self.networks[GENERATOR], self.options.ema_decay)
        optimizers = {role: self._optimizer(parameters) for role, parameters in trainable.items()}
        if not fresh:
            ema.load_state_dict(below("ema", resumed))
            restore_optimizers(optimizers, self.networks, resumed)
        self._train_steps(task, ema, optimizers)
        ema.become()
        self._agree_on_buffers()
        self._finish_task(index, task, frozen)

    def _take_over_first_task(self, task: GanTask) -> None:
        """Begin with the finished first task of another run, as if it had been trained here."""
        self.progress, _ = restore_networks(self.start, self.networks, Method())
        for network in self.networks.values():
            network.to(self.accelerator.device)
            select_task(network, task.name)
        self.method.trainable(self.networks, task.name)
        self._finish_task(0, task, tensors_digest(self.method.frozen(self.networks, task.name)))

    def _finish_task(self, index: int, task: GanTask, frozen: str) -> None:
        self.method.end_task(self.networks, task.name, self._probe(task))
        self._verify(task.name, frozen)
        self.progress = Progress(index + 1, 0, self.progress.total, self.progress.seconds)
        if self.accelerator.is_main_process:
            write_task(self.folder, index, task.name, self.networks, self.method)
            self._save(None, {})
        self.accelerator.wait_for_everyone()

    def _train_steps(self, task: GanTask, ema: Ema, optimizers: Optimizers) -> None:
        networks, stepping = self._prepare(optimizers)
        accelerator, progress = self.accelerator, self.progress
        bar = progress_bar(
            total=task.steps, initial=progress.step, desc=task.name, unit="step", show=accelerator.is_main_process
        )
        started = time.monotonic() - progress.seconds
        healthy = torch.ones((), dtype=torch.bool, device=accelerator.device)
        first = progress.step * self.options.accumulation
        with bar:
            for micro, images in enumerate(self._batches(task), first):
                with accelerator.accumulate(*networks.values()):
                    losses = self._micro_step(task.name, micro, images, networks, stepping)
                healthy &= torch.stack(list(losses.values())).isfinite().all()
                if accelerator.sync_gradients:
                    ema.update()
                    progress.step, progress.total = progress.step + 1, progress.total + 1
                    progress.seconds = time.monotonic() - started
                    bar.update()
                    self._after_step(task, ema, optimizers, losses, healthy, bar)
        accelerator.free_memory()

    def _micro_step(
        self, task: str, micro: int, images: Tensor, networks: dict[str, nn.Module], stepping: dict[str, Any]
    ) -> dict[str, Tensor]:
        """The discriminators, then the generator, on one forward of the generator."""
        rank, device = self.accelerator.process_index, self.accelerator.device
        crops = random_crop_flip(images, self.sizes[-1], stream(self.seed, task, "crop", micro, rank))
        reals = multiscale(crops.to(device), self.sizes)
        z = torch.randn(len(images), self.z_dim, generator=stream(self.seed, task, "noise", micro, rank)).to(device)
        augment = self._augmenter(task, micro, rank)
        losses = {}

        def step(role: str, loss: Tensor, batch: Batch) -> None:
            loss = loss + self.method.penalty(role, self.networks, batch)
            self.accelerator.backward(loss)
            stepping[role].step()
            if self.accelerator.sync_gradients:
                self.method.after_step(role, self.networks)  # the gradients are still there to be looked at
            stepping[role].zero_grad()
            losses[role] = loss.detach()

        fakes = networks[GENERATOR](z)
        for role, real, fake in zip(self.discriminators, reals, fakes, strict=True):
            discriminate = networks[role]
            # Two forwards: BatchNorm must not mix real and fake statistics.
            loss = discriminator_loss(discriminate(augment(real)), discriminate(augment(fake.detach())))
            step(role, loss, Batch(real))
        with self._constant_discriminators():
            step(GENERATOR, self._generator_loss(fakes, augment), Batch(z, fakes))
        return losses

    def _generator_loss(self, fakes: list[Tensor], augment: Callable[[Tensor], Tensor] = nn.Identity()) -> Tensor:  # noqa: B008
        """Adversarial over all stages, and each finer stage's colours like the coarser one's."""
        with self.accelerator.autocast():
            stages = zip(self.discriminators, fakes, strict=True)
            adversarial = sum(generator_loss(self.networks[role](augment(fake))) for role, fake in stages)
        pairs = itertools.pairwise(fakes)
        return adversarial + sum(colour_consistency(coarse, fine) for coarse, fine in pairs)

    @contextlib.contextmanager
    def _constant_discriminators(self) -> Iterator[None]:
        """The generator's step needs gradients through the discriminators, none of their weights."""
        for parameter in self._discriminating:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self._discriminating:
                parameter.requires_grad_(True)

    def _augmenter(self, task: str, micro: int, rank: int) -> Callable[[Tensor], Tensor]:
        if not self.options.diffaugment:
            return nn.Identity()
        generator = stream(self.seed, task, "diffaugment", micro, rank)
        return lambda images: diff_augment(images, self.options.diffaugment, generator)

    def _optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, self.options.learning_rate, tuple(self.options.betas))

    def _prepare(self, optimizers: Optimizers) -> tuple[dict[str, nn.Module], dict[str, Any]]:
        """Networks and optimizers as Accelerate wraps them; the plain ones stay in self.networks."""
        if self.options.sync_batchnorm and self.accelerator.num_processes > 1:
            if self.accelerator.device.type == "cpu":
                raise UserError("training.sync_batchnorm needs GPUs; set it to false")
            for role, network in self.networks.items():
                self.networks[role] = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        roles = list(self.networks)
        prepared = self.accelerator.prepare(*self.networks.values(), *(optimizers[role] for role in roles))
        networks, stepping = prepared[: len(roles)], prepared[len(roles) :]
        return dict(zip(roles, networks, strict=True)), dict(zip(roles, stepping, strict=True))

    def _batches(self, task: GanTask) -> Iterator[Tensor]:
        """Batches from the current step to the task's last: the same ones however often training stopped."""
        options, accelerator = self.options, self.accelerator
        sampler = StepBatches(
            len(task.images), options.batch, seed=self.seed, task=task.name,
            start_step=self.progress.step * options.accumulation,
            steps=(task.steps - self.progress.step) * options.accumulation,
            rank=accelerator.process_index, world=accelerator.num_processes,
        )  # fmt: skip
        for batch in DataLoader(task.images, batch_sampler=sampler, num_workers=options.workers):
            yield batch[0] if isinstance(batch, (list, tuple)) else batch

    @torch.no_grad()
    def _agree_on_buffers(self) -> None:
        """Running statistics followed each process's own batches; all take those of the first."""
        if self.accelerator.num_processes > 1:
            for network in self.networks.values():
                for buffer in network.buffers():
                    torch.distributed.broadcast(buffer, 0)

    def _probe(self, task: GanTask) -> Probe:
        return gan_probe(
            self.networks, task.images, task.name, self.seed, self.sizes, self.z_dim, self._generator_loss
        )

    def _verify(self, task: str, before: str) -> None:
        """The promise itself: whatever the method calls frozen is bit-identical to what it was."""
        if tensors_digest(self.method.frozen(self.networks, task)) != before:
            raise RuntimeError(
                f"training task {task!r} changed weights that must stay frozen (shared weights or earlier tasks); "
                f"its file was not written, and the last good state is in {self.folder.path / 'state'}"
            )

    def _save(self, ema: Ema | None, optimizers: Optimizers) -> None:
        further = {"ema": ema.state_dict()} if ema else {}
        save_training(self.folder, self.progress, self.networks, self.method, optimizers, further)

    def _after_step(
        self, task: GanTask, ema: Ema, optimizers: Optimizers, losses: dict[str, Tensor], healthy: Tensor, bar: tqdm
    ) -> None:
        """Log, draw, save, stop: whatever is due."""
        step, options = self.progress.step, self.options
        last, stop = step == task.steps, self._stop.requested()
        due = {
            "log": options.log_every_steps,
            "snapshot": options.snapshot_every_steps,
            "save": options.save_every_steps,
        }
        due = {what for what, every in due.items() if every and step % every == 0}
        if (due - {"snapshot"} or last or stop) and not healthy:
            raise UserError(
                f"task {task.name!r}: a loss became infinite or NaN by step {step}; the last good state is kept in "
                f"{self.folder.path / 'state'}. Lower training.learning_rate or the method's strength and run again"
            )
        if "log" in due or last:
            values = {f"{task.name}/{role}": float(loss) for role, loss in losses.items()}
            bar.set_postfix({role[0].upper(): f"{float(loss):.2f}" for role, loss in losses.items()}, refresh=False)
            self.accelerator.log(values, step=self.progress.total)
        if "snapshot" in due and self.accelerator.is_main_process:
            self._draw_progress(task, ema)
        if ("save" in due or stop) and not last:
            if self.accelerator.is_main_process:
                self._save(ema, optimizers)
            self.accelerator.wait_for_everyone()
        if stop and not last:
            raise Stopped(f"stopped in task {task.name!r} at step {step} of {task.steps}; the state is saved")

    @torch.no_grad()
    def _draw_progress(self, task: GanTask, ema: Ema) -> None:
        generator = self.networks[GENERATOR]
        with ema.applied(), evaluating(generator):
            z = fixed_noise(self.seed, task.name, self.z_dim).to(self.accelerator.device)
            for size, images in zip(self.sizes, generator(z), strict=True):
                name = f"{task.name}-step-{self.progress.step:06d}-{size}px.png"
                save_grid(to_uint8(images), self.folder.samples / "progress" / name, columns=4)
