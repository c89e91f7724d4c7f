"""Continual GAN training: one readable loop over Accelerate.

Per task: grow the networks -> freeze -> optimizers over what is trainable -> prepare -> train -> the EMA weights
become the generator, its BatchNorm statistics are fitted to them (if asked) -> the method remembers -> verify that
nothing frozen moved -> save.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from eftgan.adapters import select_task, using_task
from eftgan.adapters.modes import evaluating
from eftgan.data.augmentation import multiscale, random_crop_flip, to_uint8
from eftgan.data.collection import ImageCollection
from eftgan.data.grid import save_png, tile
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.files import write_bytes
from eftgan.gan.experiment import GanTask, GanTraining
from eftgan.gan.objectives import Augment, Objectives
from eftgan.gan.probe import gan_probe
from eftgan.gan.recalibrate import recalibrate
from eftgan.gan.round_robin import RoundRobinBatches
from eftgan.gan.sampling import fixed_noise
from eftgan.gan.watch import Watch
from eftgan.methods import Batch, Moment, Probe
from eftgan.models.gans import GanFamily
from eftgan.names import GENERATOR
from eftgan.progress import progress_bar
from eftgan.runfolder import RunFolder
from eftgan.training.checkpoint import below, restore_optimizers, with_prefix
from eftgan.training.ema import Ema
from eftgan.training.held import Held
from eftgan.training.optimizers import groups_of, make_adam, set_rate
from eftgan.training.tracking import log_pictures
from eftgan.training.trainer import Trainer


@dataclass(kw_only=True)
class GanTrainer(Trainer[GanTask]):
    """Trains "generator" and its discriminators ("discriminator32" and so on, coarse to fine)."""

    options: GanTraining
    family: GanFamily
    watch: Watch | None = None  # measures tasks while they train
    ema: Ema | None = None  # of the task in training

    def __post_init__(self) -> None:
        self._objectives = Objectives(self.family, self.options)

    @property
    def discriminators(self) -> list[str]:
        return [role for role in self.networks if role != GENERATOR]

    def run(self, tasks: list[GanTask]) -> None:
        """Train every task that is not done yet, and call `after_task` for each one that is."""
        names = [task.name for task in tasks]
        if any(len(self.method.stages(first)) > 1 for first in (True, False)):
            raise UserError(f"method.name: {self.method.name} trains a task in several stages, which a GAN's has not")
        resumed = self.restore(names)
        if self.progress.step and self.progress.step >= tasks[self.progress.task].steps:
            raise UserError(f"{self.folder.path / 'state'}: stands beyond the task's last step; was it shortened?")
        self.run_tasks(
            names, lambda index: self._train_task(index, tasks, resumed), lambda index: self._probe(tasks[index])
        )

    def _train_task(self, index: int, tasks: list[GanTask], resumed: dict[str, Tensor] | None) -> None:
        task, fresh = tasks[index], self.progress.step == 0
        self.announce([each.name for each in tasks], index, task.steps)
        if fresh:
            self.grow([each.name for each in tasks], index)
        for network in self.networks.values():
            select_task(network, task.name)
            network.train()
        (stage,) = self.method.stages(first=index == 0)
        if fresh:
            self.method.begin_stage(self.networks, task.name, stage.name)
        trainable = self.method.trainable(self.networks, task.name)
        # Listed once: a walk over all tasks' parameters at every step would cost more with every task.
        self._discriminating = [p for role in self.discriminators for p in trainable[role]]
        frozen = self.frozen_digest(task.name)
        self.ema = Ema(self.networks[GENERATOR], self.options.ema_decay)
        rate = self.options.learning_rate
        self._rates = {role: rate * self.method.rate(role, first=index == 0) for role in trainable}
        self.optimizers = {role: self._optimizer(role, trainable[role]) for role in trainable}
        self.held = Held(self.method, self.networks, task.name)
        if not fresh:
            self.ema.load_state_dict(below("ema", resumed or {}))
            restore_optimizers(self.optimizers, self.networks, resumed or {})
        if self.watch:
            self.watch.begin(index, {} if fresh else below("watch", resumed or {}))
        self._together = self.method.trains_on([each.name for each in tasks[: index + 1]])
        self._train_steps(task, {each.name: each.images for each in tasks if each.name in self._together}, self.ema)
        if self.watch and self.watch.kept:
            self._go_back(self.ema, self.watch.kept)
        self._average(self.ema)
        self.ema = None
        self.agree_on_buffers()
        self.method.end_stage(self.networks, task.name, stage.name)
        self.finish_task(index, task.name, frozen, self._probe(task))
        self._end_watch(task, first=index == 0)

    def further_state(self) -> dict[str, dict[str, Tensor]]:
        if self.ema is None:
            return {}
        return {"ema": self.ema.state_dict()} | ({"watch": self.watch.state_dict()} if self.watch else {})

    def _average(self, ema: Ema) -> None:
        """The generator becomes what a task ends with: its average, with statistics that fit."""
        ema.copy_to_model()
        self.held.put_back(GENERATOR)
        self._recalibrate(self._together)

    def _train_steps(self, task: GanTask, images: dict[str, ImageCollection], ema: Ema) -> None:
        """`images`: of the tasks that the method trains on, mostly of this one alone; they take turns."""
        networks, stepping = self._prepare(in_turn=len(images) > 1)
        accelerator, progress = self.accelerator, self.progress
        bar = progress_bar(
            total=task.steps, initial=progress.step, desc=task.name, unit="step", show=accelerator.is_main_process
        )
        started = time.monotonic() - progress.seconds
        finite = torch.ones((), dtype=torch.bool, device=accelerator.device)
        first = progress.step * self.options.accumulation
        with bar:
            for micro, (of, batch) in enumerate(self._batches(task, images), first):
                if micro % self.options.accumulation == 0:
                    self._begin_step(Moment(progress.step, progress.step / task.steps))
                with accelerator.accumulate(*networks.values()), self._using(of):
                    losses = self._micro_step(task.name, micro, batch, networks, stepping)
                finite &= torch.stack(list(losses.values())).isfinite().all()
                if accelerator.sync_gradients:
                    ema.update()
                    progress.step, progress.total = progress.step + 1, progress.total + 1
                    progress.seconds = time.monotonic() - started
                    bar.update()
                    self._after_step(task, losses, finite, bar)
                    if self.watch and self.watch.has_ended:
                        break
        accelerator.free_memory()

    def _micro_step(
        self, task: str, micro: int, images: Tensor, networks: dict[str, nn.Module], stepping: dict[str, Any]
    ) -> dict[str, Tensor]:
        """The discriminators, then the generator, on one forward of the generator."""
        rank, device = self.accelerator.process_index, self.accelerator.device
        crops = random_crop_flip(images, self.family.sizes[-1], stream(self.seed, task, "crop", micro, rank))
        reals = multiscale(crops.to(device), self.family.sizes)
        z = torch.randn(len(images), self.family.z_dim, generator=stream(self.seed, task, "noise", micro, rank)).to(
            device
        )
        augment = self._objectives.augmenter(self.seed, task, micro, rank)
        losses = {}

        def step(role: str, loss: Tensor, batch: Batch) -> None:
            loss = loss + self.method.penalty(role, self.networks, batch)
            self.accelerator.backward(loss)
            stepping[role].step()
            if self.accelerator.sync_gradients:
                self.held.put_back(role)
                self.method.after_step(role, self.networks)  # the gradients are still there to be looked at
            stepping[role].zero_grad()
            losses[role] = loss.detach()

        fakes = networks[GENERATOR](z)
        for role, real, fake in zip(self.discriminators, reals, fakes, strict=True):
            loss = self._objectives.discriminator(networks[role], real, fake.detach(), augment, micro)
            step(role, loss, Batch(real))
        with self._constant_discriminators():
            step(GENERATOR, self._generator_loss(fakes, augment), Batch(z, fakes))
        return losses

    def _generator_loss(self, fakes: list[Tensor], augment: Augment = nn.Identity()) -> Tensor:  # noqa: B008
        discriminators = [self.networks[role] for role in self.discriminators]
        return self._objectives.generator(discriminators, fakes, augment, self.accelerator.autocast)

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

    def _optimizer(self, role: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        first, second = self.options.betas
        groups, fused = groups_of(self.method, role, parameters), self.options.fused_adam
        return make_adam(groups, self._rates[role], (first, second), fused=fused)

    def _begin_step(self, moment: Moment) -> None:
        """Set the learning rates, and let the method set what depends on the moment."""
        share = min(1.0, (1.0 - moment.share) / self.options.decay) if self.options.decay else 1.0
        for role, optimizer in self.optimizers.items():
            set_rate(optimizer, self._rates[role] * share)
            self.method.begin_step(role, self.networks, moment)

    def _prepare(self, in_turn: bool) -> tuple[dict[str, nn.Module], dict[str, Any]]:
        """Networks and optimizers as Accelerate wraps them; the plain ones stay in self.networks.

        in_turn: a batch trains the own parts of one task, the next one those of another.
        """
        self.accelerator.ddp_handler.find_unused_parameters = in_turn
        if self.options.sync_batchnorm and self.accelerator.num_processes > 1:
            if self.accelerator.device.type == "cpu":
                raise UserError("training.sync_batchnorm needs GPUs; set it to false")
            for role, network in self.networks.items():
                self.networks[role] = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        roles = list(self.networks)
        prepared = self.accelerator.prepare(*self.networks.values(), *(self.optimizers[role] for role in roles))
        networks, stepping = prepared[: len(roles)], prepared[len(roles) :]
        return dict(zip(roles, networks, strict=True)), dict(zip(roles, stepping, strict=True))

    def _batches(self, task: GanTask, images: dict[str, ImageCollection]) -> DataLoader:
        """From the current step to the task's last: the same batches however often training stopped."""
        options, accelerator = self.options, self.accelerator
        rank, world = accelerator.process_index, accelerator.num_processes
        turns = RoundRobinBatches(images, options.batch, seed=self.seed, rank=rank, world=world)
        numbers = range(self.progress.step * options.accumulation, task.steps * options.accumulation)
        return DataLoader(turns, sampler=numbers, batch_size=None, num_workers=options.workers)

    @contextlib.contextmanager
    def _using(self, task: str) -> Iterator[None]:
        """Every network computes for the task inside the block."""
        with contextlib.ExitStack() as stack:
            for network in self.networks.values():
                stack.enter_context(using_task(network, task))
            yield

    def _recalibrate(self, tasks: list[str]) -> None:
        """Fit the BatchNorm statistics of the tasks just trained to the averaged weights."""
        count, batch = self.options.recalibration, self.options.batch
        if count == 0:
            return
        for task in tasks:
            noise = torch.randn(count, batch, self.family.z_dim, generator=stream(self.seed, task, "recalibration"))
            recalibrate(self.networks[GENERATOR], task, noise.to(self.accelerator.device))

    def _probe(self, task: GanTask) -> Probe:
        losses = self._generator_loss, self._objectives.adversarial.discriminator
        return gan_probe(self.networks, task, self.seed, self.family, *losses)

    def _after_step(self, task: GanTask, losses: dict[str, Tensor], finite: Tensor, bar: tqdm) -> None:
        """Log, draw, save, stop: whatever is due."""
        options = self.options
        if self.due(options.log_every_steps) or self.progress.step == task.steps:
            self.check_finite(task.name, finite)
            values = {role: float(loss) for role, loss in losses.items()}
            shown = {role.replace("generator", "G").replace("discriminator", "D"): v for role, v in values.items()}
            bar.set_postfix({role: f"{value:.2f}" for role, value in shown.items()}, refresh=False)
            self.accelerator.log({f"{task.name}/{role}": v for role, v in values.items()}, step=self.progress.total)
        if self.due(options.snapshot_every_steps) and self.accelerator.is_main_process:
            self._draw_progress(task)
        last = task.steps
        if self.watch and self.watch.is_due(self.progress.step, last):
            self.check_finite(task.name, finite)
            self._look(self.watch, bar)
            last = self.progress.step if self.watch.has_ended else last
        self.save_or_stop(task.name, last, options.save_every_steps, finite)

    def _look(self, watch: Watch, bar: tqdm) -> None:
        """Measure the generator as it would be if the task ended here; training goes on as if nobody had looked."""
        assert self.ema is not None  # a task is in training
        generator, metric = self.networks[GENERATOR], watch.metric
        live = {key: tensor.clone() for key, tensor in generator.state_dict().items()}
        self._average(self.ema)
        self.agree_on_buffers([GENERATOR])
        point = watch.measure(generator, self.progress.step)
        generator.load_state_dict(live)
        if watch.keeps_best and watch.curve.best is point:
            watch.keep(self._restorable(self.ema))
        if self.accelerator.is_main_process:
            bar.write(f"{watch.curve.task}, step {point.step}: {metric.name} {metric.text(point.value, point.spread)}")
        self.accelerator.log({f"{watch.curve.task}/{metric.name}": point.value}, step=self.progress.total)

    def _restorable(self, ema: Ema) -> dict[str, Tensor]:
        """All that a step of the task changes, but for the optimizers."""
        parts = with_prefix("ema", ema.state_dict()) | with_prefix("method", self.method.state_dict())
        for role, network in self.networks.items():
            trained = {key: p for key, p in network.named_parameters() if p.requires_grad}
            parts |= with_prefix(f"network/{role}", trained | dict(network.named_buffers()))
        return parts

    def _go_back(self, ema: Ema, kept: Mapping[str, Tensor]) -> None:
        """The networks, their average and the method as they were when `_restorable` was taken."""
        for role, network in self.networks.items():
            network.load_state_dict(network.state_dict() | below(f"network/{role}", kept))
        ema.load_state_dict(below("ema", kept))
        self.method.load_state_dict(below("method", kept), self.networks)

    def _end_watch(self, task: GanTask, first: bool) -> None:
        """Tell how the task's curve ended."""
        if self.watch:
            trains = [self.method.trains_shared(GENERATOR, first=each) for each in (True, False)]
            lines = self.watch.end(foundation=first and trains == [True, False], last=task.steps)
            if lines and self.accelerator.is_main_process:
                print(*lines, sep="\n", flush=True)

    def _take_over_first_task(self, start: RunFolder, task: str, probe: Probe) -> None:
        super()._take_over_first_task(start, task, probe)
        if start.curve(0, task).is_file() and self.accelerator.is_main_process:
            write_bytes(self.folder.curve(0, task), start.curve(0, task).read_bytes())

    @torch.no_grad()
    def _draw_progress(self, task: GanTask) -> None:
        generator = self.networks[GENERATOR]
        with self.ema.applied() if self.ema else contextlib.nullcontext(), evaluating(generator):
            z = fixed_noise(self.seed, task.name, self.family.z_dim).to(self.accelerator.device)
            for size, images in zip(self.family.sizes, generator(z), strict=True):
                name = f"{task.name}-step-{self.progress.step:06d}-{size}px.png"
                grid = tile(to_uint8(images).cpu(), columns=4)
                save_png(grid, self.folder.samples / "progress" / name)
                shown = {f"{task.name}/{size}px": grid.permute(1, 2, 0).numpy()}
                log_pictures(self.accelerator, shown, self.progress.total)
