"""What training has in common, whatever is trained: the sequence, the promise, resume states, polite stops."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from eftgan.adapters import remove_task, select_task, task_names
from eftgan.adapters.fit import with_neutral_transforms, with_wider_groups
from eftgan.data.streams import stream_seed
from eftgan.errors import UserError
from eftgan.files import write_json
from eftgan.methods import Method, Probe
from eftgan.methods.base import seen_tasks
from eftgan.runfolder import DIVERGED, RunFolder
from eftgan.tensors import tensors_digest
from eftgan.training.checkpoint import (
    Filed,
    Progress,
    below,
    drop_old_states,
    read_shared,
    read_task,
    restore_networks,
    save_training,
    with_task,
    write_task,
)
from eftgan.training.held import Held, held_entries
from eftgan.training.stopping import Stopped, StopSignal
from eftgan.training.tracking import tracking


class Task(Protocol):
    """What is learned at a time."""

    name: str


AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(kw_only=True)
class Trainer(Generic[AnyTask]):
    """Takes networks through a sequence of tasks. Subclasses know what a step is."""

    accelerator: Accelerator
    networks: dict[str, nn.Module]  # by role
    method: Method
    seed: int
    folder: RunFolder
    start: RunFolder | None = None  # a run whose first task is taken over
    starts: Mapping[str, str] = field(default_factory=dict)  # by task, in place of the method's `init`
    after_task: Callable[[int], None] = lambda index: None
    progress: Progress = field(default_factory=Progress)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)  # of the task in training
    held: Held = field(init=False, repr=False)  # entries that this task must not write

    def run(self, tasks: list[AnyTask]) -> None:
        """Train every task that is not done yet, and call `after_task` for each one that is."""
        raise NotImplementedError

    def run_tasks(self, names: Sequence[str], train_task: Callable[[int], None], probe: Callable[[int], Probe]) -> None:
        """Train every task that is not done yet, and call `after_task` for each one that is."""
        with StopSignal(self.accelerator) as self._stop:
            for index, name in enumerate(names):
                if self.start and index == self.progress.number == 0:
                    self._take_over_first_task(self.start, name, probe(0))
                elif index == self.progress.task:
                    self._let_go(names)
                    train_task(index)
                stopping = self._stop.at_once(f"stopped after task {name!r}; its files are whole")
                with stopping, tracking(self.accelerator, self.folder, self.progress.total):
                    self.after_task(index)
        if self.accelerator.is_main_process:
            drop_old_states(self.folder)  # a kill between writing the last state and this leaves one too many

    def _let_go(self, names: Sequence[str]) -> None:
        """Before a task begins: finished ones leave the networks, but for the first and the last.

        Memory, states and the frozen digest then cost the same however many tasks there were.
        """
        finished = names[: self.progress.task]
        if self.method.lets_go and self.progress.step == 0:
            for network in self.networks.values():
                for name in set(task_names(network)) - {*finished[:1], *finished[-1:]}:
                    remove_task(network, name)

    def grow(self, names: Sequence[str], index: int, head_size: int | None = None) -> None:
        """Add a task to the networks; one that it starts from is back for a moment if it was let go."""
        name = names[index]
        torch.manual_seed(stream_seed(self.seed, name, "init"))
        init = self.starts.get(name)
        source = init or self.method.init
        recalled = contextlib.ExitStack()
        if source in names[:index]:
            recalled.enter_context(with_task(self.folder, names.index(source), source, self.networks, self.method))
        with recalled:
            self.method.grow(self.networks, name, init=init, head_size=head_size)

    def restore(self, names: Sequence[str]) -> dict[str, Tensor] | None:
        """Take up the folder's newest state, if there is one; its tensors serve what else is to be restored."""
        self._names = list(names)
        self.progress, tensors = restore_networks(self.folder, self.networks, self.method)
        finished = self.folder.finished(names) if tensors is None else []
        if finished:
            self._restore_from_files(finished)
        self._check_state(names)
        self.read_further(tensors or {})
        for network in self.networks.values():
            network.to(self.accelerator.device)
        self._check_files(names[: self.progress.task])
        return tensors

    def _restore_from_files(self, finished: list[str]) -> None:
        """Go on from the finished tasks' files where the resume states are gone, if the method needs no more."""
        if not self.method.files_suffice:
            raise UserError(
                f"{self.folder.path}: {', '.join(finished)} {'is' if len(finished) == 1 else 'are'} trained, but the "
                f"resume states ({self.folder.path / 'state'}) are gone, and {self.method.name} needs more than the "
                "tasks' files to go on; put them back, or choose another out= to train anew"
            )
        read_shared(self.folder, self.networks)
        for index, name in enumerate(finished):
            if self.method.lets_go and 0 < index < len(finished) - 1:
                continue
            for role, network in self.networks.items():
                read_task(self.folder, index, name, role, network, self.method)
        self.progress = Progress(task=len(finished))
        if self.accelerator.is_main_process:
            print(f"{self.folder.path}: no resume state; going on from the files of {', '.join(finished)}")

    def _take_over_first_task(self, start: RunFolder, task: str, probe: Probe) -> None:
        """Begin with another run's finished first task as if it had been trained here.

        Its groups may be narrower; where it left its transforms neutral, those of this run may be of any kind.
        """
        fit = with_neutral_transforms if self.method.first_transforms == "neutral" else with_wider_groups
        self.progress, tensors = restore_networks(start, self.networks, Method(), fit)
        self.read_further(tensors or {})
        for network in self.networks.values():
            network.to(self.accelerator.device)
            select_task(network, task)
        self.method.as_trained(self.networks, below("method", tensors or {}))
        self.method.trainable(self.networks, task)
        self.finish_task(0, task, self.frozen_digest(task), probe)

    def _check_state(self, names: Sequence[str]) -> None:
        """Refuse a state that these tasks did not lead to."""
        done, step = self.progress.task, self.progress.step
        seen, begun = seen_tasks(self.networks), names[: done + (step > 0)]
        expected = [name for name in begun if name in seen or name == begun[-1] or not self.method.lets_go]
        if seen != expected or done + (step > 0) > len(names):
            raise UserError(
                f"{self.folder.path / 'state'}: the resume state stands at step {step} after {done} tasks and "
                f"knows {', '.join(seen) or 'no task'}; these tasks do not lead there. Was config.yaml changed?"
            )

    def _check_files(self, finished: Sequence[str]) -> None:
        """Every finished task has its file; a kill between the first state and the first file left only the state."""
        unfiled = len(finished) == 1 and self.progress.step == 0 and not self.folder.task_file(0, finished[0]).exists()
        if unfiled and self.accelerator.is_main_process:
            self._write_task(0, finished[0])
        self.accelerator.wait_for_everyone()
        for path in (self.folder.task_file(index, name) for index, name in enumerate(finished)):
            if not path.is_file():
                raise UserError(f"{path} is missing, though the task is done; put it back, or remove the run folder")

    def announce(self, names: Sequence[str], index: int, steps: int) -> None:
        """Say which task begins or goes on, and how long it is."""
        if self.accelerator.is_main_process:
            gone_on = f", from step {self.progress.step}" if self.progress.step else ""
            print(f"task {index + 1} of {len(names)}: {names[index]}, {steps} steps{gone_on}", flush=True)

    def frozen_digest(self, task: str) -> str:
        """What must be the same after the task as before it."""
        held = held_entries(self.method, self.networks, task)
        return tensors_digest({**self.method.frozen(self.networks, task), **held})

    def finish_task(self, index: int, task: str, frozen: str, probe: Probe) -> None:
        """The method remembers; the promise is checked; only then the task's file and the state are written.

        The first state is whole and comes before the file, which can be made from it; later states rest on the files.
        """
        self.method.end_task(self.networks, task, probe)
        if self.frozen_digest(task) != frozen:
            raise RuntimeError(
                f"training task {task!r} changed weights that must stay frozen (shared weights or earlier tasks); "
                f"its file was not written, and the last good state is in {self.folder.path / 'state'}"
            )
        self.progress = Progress(index + 1, 0, self.progress.total, self.progress.seconds)
        self.optimizers = {}
        if index == 0:
            self.save()
        if self.accelerator.is_main_process:
            self._write_task(index, task)
        if index > 0:
            self.save()

    def _write_task(self, index: int, task: str) -> None:
        write_task(self.folder, index, task, self.networks, self.method, self.kept_with(index))

    def kept_with(self, index: int) -> Mapping[str, Mapping[str, Tensor]]:
        """What the finished task's file keeps beside the method's own, under names in the place of roles."""
        return {}

    def further_state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Tensors beside networks, method and optimizers that training needs to go on, by part."""
        return {}

    def read_further(self, state: Mapping[str, Tensor]) -> None:
        """Take back what of `further_state` outlives a task."""

    def save(self) -> None:
        """Write the resume state."""
        if self.accelerator.is_main_process:
            save_training(
                self.folder,
                self.progress,
                self.networks,
                self.method,
                self.optimizers,
                self.further_state(),
                self._filed(),
            )
        self.accelerator.wait_for_everyone()

    def _filed(self) -> Filed | None:
        """What the state need not hold. The state after a first task is whole: other runs may start from it."""
        if not self.method.lets_go or self.progress.task == 0 or (self.progress.task == 1 and self.progress.step == 0):
            return None
        return Filed.of(self.folder, self._names, self.progress, self.networks)

    def due(self, every: int) -> bool:
        """Whether something that happens every so many steps (0: never) happens now."""
        return bool(every) and self.progress.step % every == 0

    def save_or_stop(self, task: str, last_step: int, every: int, finite: Tensor) -> None:
        """After a step: write the state when it is due, and stop if a signal asked for it."""
        last, stop = self.progress.step == last_step, self._stop.requested()
        if last or stop or self.due(every):
            self.check_finite(task, finite)
        if last or not (stop or self.due(every)):
            return
        self.save()
        if stop:
            step = self.progress.step
            raise Stopped(f"stopped in task {task!r} at step {step} of {last_step}; the state is saved")

    def check_finite(self, task: str, finite: Tensor) -> None:
        """Stop before any state is written if a loss was not finite; `finite` is one boolean over all steps so far."""
        if not finite:
            facts = self.folder.read_facts()
            if facts and self.accelerator.is_main_process:  # with this in it, lower rates are accepted
                write_json(self.folder.facts, facts | {DIVERGED: {"task": task, "step": self.progress.step}})
            raise UserError(
                f"task {task!r}: a loss became infinite or NaN by step {self.progress.step}; the last good state is "
                f"kept in {self.folder.path / 'state'}. Run again with a lower learning rate or method.strength: it "
                "goes on from there"
            )

    @torch.no_grad()
    def agree_on_buffers(self, roles: Sequence[str] | None = None) -> None:
        """Running statistics followed each process's own batches; all take those of the first."""
        if self.accelerator.num_processes > 1:
            for role in self.networks if roles is None else roles:
                for buffer in self.networks[role].buffers():
                    torch.distributed.broadcast(buffer, 0)
