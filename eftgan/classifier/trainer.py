"""Continual training of a classifier: one readable loop over Accelerate.

Per task: grow the network by a head (and what else the method gives a task) -> for every stage: freeze -> SGD over what
is trainable -> prepare -> train -> the method remembers -> verify that nothing frozen moved -> save.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from eftgan.adapters import select_task
from eftgan.adapters.layers import outputs_of
from eftgan.adapters.modes import evaluating
from eftgan.adapters.taskfile import read_task_file
from eftgan.classifier.experiment import ClassifierTraining
from eftgan.classifier.kept import look, missing, require_features
from eftgan.classifier.probe import classifier_probe
from eftgan.classifier.selection import HELD_OUT, Best, Schedule, SeenImages, Stage
from eftgan.data.augmentation import crop_flip_pad, random_rotation
from eftgan.data.pixels import Pixels
from eftgan.data.splits import LabelledTask
from eftgan.data.streams import stream, stream_seed
from eftgan.errors import UserError
from eftgan.evaluation.rules import RULES, Rule
from eftgan.methods import Batch, Probe
from eftgan.methods.heads import head_input, head_of
from eftgan.names import CLASSIFIER, INFERENCE
from eftgan.progress import progress_bar
from eftgan.training.checkpoint import below, restore_optimizers, with_prefix
from eftgan.training.held import Held
from eftgan.training.optimizers import groups_of, make_adam, make_sgd, set_rate
from eftgan.training.trainer import Trainer

EVALUATION_BATCH = 256
ADAM_SECOND_BETA = 0.999


@dataclass(kw_only=True)
class ClassifierTrainer(Trainer[LabelledTask]):
    """Trains the network "classifier" on one labelled task after another."""

    options: ClassifierTraining
    pixels: Pixels
    rule: Rule = RULES["entropy"]  # of task inference: what a task has to keep for it is kept in its file
    auxiliary: SeenImages | None = None  # unlabelled images, for methods that train on some; their labels mean nothing
    records: dict[str, dict[str, float]] = field(default_factory=dict)  # per task: seconds, steps, ...

    @property
    def network(self) -> nn.Module:
        return self.networks[CLASSIFIER]

    def run(self, tasks: list[LabelledTask]) -> None:
        """Train every task that is not done yet, and call `after_task` for each one that is."""
        names, self._tasks = [task.name for task in tasks], tasks
        require_features(self.rule, self.network)
        self._check_stages()
        self._lay_out()  # before a method copies the network: copies must round alike
        resumed = self.restore(names)
        self.run_tasks(
            names, lambda index: self._train_task(index, tasks, resumed), lambda index: self._probe(tasks[index])
        )

    def _check_stages(self) -> None:
        stages = [self.method.stages(first) for first in (True, False)]
        several = any(len(each) > 1 or each[0].held_out for each in stages)
        if several and self.options.selection != "last":
            raise UserError(
                f"training.selection: {self.method.name} trains a task in several stages, and no epoch but the last "
                f"ends with all of them done; set it to last, not {self.options.selection}"
            )

    def _lay_out(self) -> None:
        """Channels last: a step of ResNet-18/3 then takes 0.7 of the time on a CPU."""
        self.network.to(memory_format=torch.channels_last)

    def _train_task(self, index: int, tasks: list[LabelledTask], resumed: dict[str, Tensor] | None) -> None:
        task, self._best = tasks[index], Best()
        if self.progress.step == 0:
            self.grow([each.name for each in tasks], index, head_size=len(task.classes) * self.method.outputs_per_class)
            self._best.keep(self._restorable())
            resumed = None
        elif self.options.selection != "last":
            self._best.load_state_dict(below("best", resumed or {}))
        check_head(self.network, task, self.method.outputs_per_class)
        select_task(self.network, task.name)
        frozen = self.frozen_digest(task.name)
        self._train_selected(index, tasks, resumed)
        self.agree_on_buffers()
        self._record(task.name)
        self.finish_task(index, task.name, frozen, self._probe(task))

    def _train_selected(self, index: int, tasks: list[LabelledTask], resumed: dict[str, Tensor] | None) -> None:
        """Train, and end with the weights of the epoch that `selection` asks for."""
        name, schedule = tasks[index].name, self._schedule(index)
        heads = self.method.trains_on([task.name for task in tasks[: index + 1]])
        chosen = [task for task in tasks if task.name in heads]
        classes = [len(task.classes) for task in chosen]
        images, test = (SeenImages([getattr(task, part) for task in chosen], classes) for part in ("train", "test"))
        stages, held = self.method.stages(index == 0), None
        if stages[0].held_out:
            images, held = images.divided(HELD_OUT, stream(self.seed, name, "held out"))
        together = self.options.batch * self.accelerator.num_processes
        whole = Stage(name, heads, images, schedule.epochs, schedule, together)
        self.announce([task.name for task in tasks], index, whole.last)
        if self.options.selection == "last":
            self._train_stages(whole.divided(stages, self.auxiliary), resumed, held)
            return
        if self.options.selection == "test":
            self._train_stage(dataclasses.replace(whole, watch=test), resumed)
            self._restore(self._best.kept)
        else:
            most, watched = images.divided(HELD_OUT, stream(self.seed, name, "held out"))
            search = dataclasses.replace(whole, images=most, watch=watched)
            if self.progress.step < search.last:
                self._train_stage(search, resumed)
                self._restore(self._best.kept)  # as the task began
                resumed = None
            self._train_stage(dataclasses.replace(whole, epochs=self._best.epoch, first=search.last), resumed)
        self.method.end_stage(self.networks, name, whole.name)

    def _train_stages(
        self, stages: list[Stage], resumed: dict[str, Tensor] | None, held_out: SeenImages | None = None
    ) -> None:
        """One after the other. No state is saved between two, so one that a resumed task is past has been ended."""
        passed = [stage for stage in stages if stage.last < self.progress.step]
        for stage in stages[len(passed) :]:
            self._train_stage(stage, resumed)
            if held_out is not None:
                self.method.measured(stage.name, self._accuracy(stage, held_out))
            self.method.end_stage(self.networks, stage.task, stage.name)
            resumed = None

    def _schedule(self, index: int) -> Schedule:
        first = index == 0 or self.method.fresh
        schedule = self.options.first if first else self.options.later or self.options.first
        rate = schedule.learning_rate * self.method.rate(CLASSIFIER, index == 0)
        return dataclasses.replace(schedule, learning_rate=rate)

    def _train_stage(self, stage: Stage, resumed: dict[str, Tensor] | None) -> None:
        self.network.train()
        self._lay_out()
        if self.progress.step == stage.begin:
            self.method.begin_stage(self.networks, stage.task, stage.name)
            self._lay_out()  # what a method made anew: a resumed run lays out all of it
        optimizer = self._optimizer(stage)
        if resumed is not None:
            restore_optimizers(self.optimizers, self.networks, resumed)
        self.held = Held(self.method, self.networks, stage.task)
        model, stepping = self.accelerator.prepare(self.network, optimizer)
        progress, started = self.progress, time.monotonic() - self.progress.seconds
        finite = torch.ones((), dtype=torch.bool, device=self.accelerator.device)
        with self._bar(stage) as bar:
            for images, labels in self._batches(stage):
                set_rate(optimizer, stage.rate(progress.step))
                self.method.begin_step(CLASSIFIER, self.networks, stage.moment(progress.step))
                loss = self._loss(stage, images, labels, model)
                self.accelerator.backward(loss)
                stepping.step()
                self.held.put_back(CLASSIFIER)
                self.method.after_step(CLASSIFIER, self.networks)  # the gradients are still there to be looked at
                stepping.zero_grad()
                finite &= loss.detach().isfinite()
                progress.step, progress.total = progress.step + 1, progress.total + 1
                progress.seconds = time.monotonic() - started
                bar.update()
                self._after_step(stage, loss.detach(), finite, bar)
        self.accelerator.free_memory()

    def _optimizer(self, stage: Stage) -> torch.optim.Optimizer:
        parameters = self.method.trainable(self.networks, stage.task)[CLASSIFIER]
        groups, schedule = groups_of(self.method, CLASSIFIER, parameters), stage.schedule
        rate, momentum, decay = schedule.learning_rate, self.options.momentum, schedule.weight_decay
        made: torch.optim.Optimizer
        if self.options.optimizer == "adam":
            made = make_adam(groups, rate, (momentum, ADAM_SECOND_BETA), decay, fused=self.options.fused_adam)
        else:
            made = make_sgd(groups, rate, momentum=momentum, decay=decay)
        self.optimizers = {CLASSIFIER: made}
        return made

    def _loss(self, stage: Stage, images: Tensor, labels: Tensor, model: nn.Module) -> Tensor:
        """The method's objective, cross-entropy as a rule, and its penalty; every draw follows (seed, task, step)."""
        rank, device = self.accelerator.process_index, self.accelerator.device
        step = self.progress.step - stage.first
        torch.manual_seed(stream_seed(self.seed, stage.task, "step", step, rank))  # dropout
        if self.options.augment:
            generator = stream(self.seed, stage.task, "augment", step, rank)
            images = crop_flip_pad(images, self.options.padding, generator=generator)
            if self.options.rotation:
                images = random_rotation(images, self.options.rotation, generator)
        images, labels = self.method.views(
            images, labels, sum(stage.images.classes), stream(self.seed, stage.task, "views", step, rank)
        )
        inputs, labels = self.pixels(images.to(device)), labels.to(device)
        with head_input(self.network) as noted:
            outputs = model(inputs)
        batch = Batch(inputs, outputs, labels, noted.features)
        loss = self.method.objective(
            stage.name, batch, lambda: F.cross_entropy(self._joined(stage, outputs, noted.features), labels)
        )
        return loss + self.method.penalty(CLASSIFIER, self.networks, batch)

    def _joined(self, stage: Stage, outputs: Tensor, features: Tensor) -> Tensor:
        """Logits of all tasks in training side by side: mostly one, whose outputs they are."""
        logits = (outputs if t == stage.task else head_of(self.network, t)(features) for t in stage.heads)
        return torch.cat(list(logits), dim=1)

    def _batches(self, stage: Stage) -> Iterator[tuple[Tensor, Tensor]]:
        rank, world, options = self.accelerator.process_index, self.accelerator.num_processes, self.options
        return stage.batches(
            self.progress.step, options.batch, seed=self.seed, rank=rank, world=world, workers=options.workers
        )

    def _after_step(self, stage: Stage, loss: Tensor, finite: Tensor, bar: tqdm) -> None:
        """Log, watch, save, stop: whatever is due."""
        step, options = self.progress.step, self.options
        if self.due(options.log_every_steps) or step == stage.last:
            self.check_finite(stage.task, finite)
            figures = {"loss": float(loss), **self.method.figures()}
            bar.set_postfix({name: f"{value:.2f}" for name, value in figures.items()}, refresh=False)
            self.accelerator.log({f"{stage.task}/{k}": v for k, v in figures.items()}, step=self.progress.total)
        if stage.watch is not None and stage.ends_epoch(step):
            self._watch(stage)
        self.save_or_stop(stage.task, stage.last, options.save_every_steps, finite)

    def _watch(self, stage: Stage) -> None:
        """Note the epoch's accuracy; with `test`, the best epoch's weights are kept."""
        assert stage.watch is not None
        accuracy = self._accuracy(stage, stage.watch)
        better = self._best.better(stage.epoch(self.progress.step), accuracy)
        if better and self.options.selection == "test":
            self._best.keep(self._restorable())

    @torch.no_grad()
    def _accuracy(self, stage: Stage, watched: SeenImages) -> float:
        """The share of images that the network takes for what they are."""
        self.agree_on_buffers()
        right = 0
        with evaluating(self.network), head_input(self.network) as noted:
            for chunk in torch.arange(len(watched)).split(EVALUATION_BATCH):
                images, labels = watched[chunk]
                outputs = self.network(self.pixels(images.to(self.accelerator.device)))
                logits = self._joined(stage, outputs, noted.features)[:, : sum(watched.classes)]  # as images stand
                predicted = logits.argmax(1)
                right += int((predicted.cpu() == labels).sum())
        return right / len(watched)

    def _restorable(self) -> dict[str, Tensor]:
        """Network and method, to go back to; nothing where no selection needs it."""
        if self.options.selection == "last":
            return {}
        return with_prefix("network", self.network.state_dict()) | with_prefix("method", self.method.state_dict())

    def _restore(self, kept: dict[str, Tensor]) -> None:
        self.network.load_state_dict(below("network", kept))
        self.method.load_state_dict(below("method", kept), self.networks)

    def _probe(self, task: LabelledTask) -> Probe:
        return classifier_probe(self.network, task, self.pixels, self.seed)

    def _bar(self, stage: Stage) -> tqdm:
        total, done = stage.last - stage.begin, self.progress.step - stage.begin
        title = stage.task if stage.part == (0, 1) else f"{stage.task}, {stage.name}"
        return progress_bar(total=total, initial=done, desc=title, unit="step", show=self.accelerator.is_main_process)

    def _record(self, task: str) -> None:
        """Figures of the finished task, for its score lines."""
        earlier = sum(record["seconds"] for record in self.records.values())
        self.records[task] = {
            "seconds": self.progress.seconds - earlier,
            "steps": self.progress.step,
            **self.method.figures(),
        }
        if self.options.selection != "last":
            self.records[task] |= {"epoch": self._best.epoch, "best accuracy": self._best.accuracy}

    def kept_with(self, index: int) -> dict[str, dict[str, Tensor]]:
        if not self.rule.keeps:
            return {}
        names, images = [task.name for task in self._tasks[: index + 1]], self._tasks[index].train
        before: dict[str, Tensor] = {}
        for keys, place in ((self.rule.first_keeps, 0), (self.rule.hands_on, index - 1)) if index else ():
            kept = read_task_file(self.folder.task_file(place, names[place])).states.get(INFERENCE, {}) if keys else {}
            if missing(keys, kept):
                return {}  # that task was trained under another rule: all are fitted when they are measured
            before |= {key: kept[key] for key in keys}
        own = look(self.network, names, images, self.pixels, self.method.outputs_per_class, self.rule.asks)
        return {INFERENCE: self.rule.fit(dataclasses.replace(own, kept=before), images.targets)}

    def further_state(self) -> dict[str, dict[str, Tensor]]:
        figures = ((f"{task}/{key}", value) for task, record in self.records.items() for key, value in record.items())
        further = {"record": {key: torch.tensor(value, dtype=torch.float64) for key, value in figures}}
        if self.optimizers and self.options.selection != "last":
            further["best"] = self._best.state_dict()
        return further

    def read_further(self, state: Mapping[str, Tensor]) -> None:
        for key, value in below("record", state).items():
            task, _, figure = key.partition("/")
            self.records.setdefault(task, {})[figure] = value.item()


def check_head(network: nn.Module, task: LabelledTask, outputs_per_class: int = 1) -> None:
    """Refuse data whose number of classes is not that of the task's head."""
    outputs = outputs_of(head_of(network, task.name))
    if outputs != len(task.classes) * outputs_per_class:
        raise UserError(
            f"task {task.name}: the network's head has {outputs} outputs"
            f"{f', {outputs_per_class} for a class' if outputs_per_class > 1 else ''}, the data {len(task.classes)} "
            "classes; use the data that the run was started with"
        )
