"""Exact resume states, shared weights and task files: safetensors and JSON only, written atomically."""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eftgan.adapters import fingerprint, load_shared, remove_task, task_names, task_state
from eftgan.adapters.layout import restore_layout, task_layout
from eftgan.adapters.storage import describe_adapters
from eftgan.adapters.taskfile import read_task_file, write_task_file
from eftgan.adapters.tasks import numbered
from eftgan.errors import UserError
from eftgan.files import settled_digest
from eftgan.methods import Method, Networks
from eftgan.runfolder import RunFolder
from eftgan.tensors import read_tensors, tensor_names, tensors_digest, write_tensors

STATES_KEPT = 2
SHARED_FORMAT = "eftgan-run-shared-1"


def save_state(folder: RunFolder, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a resume state; older ones than the last two go."""
    path, text = folder.path / "state" / f"{number:08d}.safetensors", json.dumps(facts)
    write_tensors(path, tensors, {"facts": text, "digest": _state_digest(tensors, text)})
    drop_old_states(folder)
    return path


def drop_old_states(folder: RunFolder) -> None:
    """Keep the last two."""
    for old in folder.state_files()[:-STATES_KEPT]:
        old.unlink(missing_ok=True)


def load_state(folder: RunFolder) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest whole state; a damaged one is passed over with a warning."""
    files = folder.state_files()
    for path in reversed(files):
        try:
            tensors, metadata = read_tensors(path)
            if _state_digest(tensors, metadata.get("facts", "")) != metadata.get("digest"):
                raise UserError(f"{path}: its content does not match its digest")
            return tensors, json.loads(metadata["facts"])
        except (UserError, KeyError, ValueError) as error:
            warnings.warn(f"skipped a damaged resume state: {error}", stacklevel=2)
    if files:
        raise UserError(
            f"{folder.path / 'state'}: none of the resume states is whole ({', '.join(p.name for p in files)}); "
            "put a copy back, or remove that folder to go on from the finished tasks' files where the method can (eft)"
        )
    return None


def _state_digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    return hashlib.sha256((tensors_digest(tensors) + facts).encode()).hexdigest()


def filed_roles(folder: RunFolder) -> list[str]:
    """The networks whose shared weights lie in the folder's file; none where there is no such file."""
    if not folder.shared.exists():
        return []
    return list(dict.fromkeys(key.partition("/")[0] for key in tensor_names(folder.shared)))


@dataclass(frozen=True)
class Filed:
    """What a state leaves out because files hold it: shared weights, and finished tasks in the networks."""

    roles: list[str]  # the networks that this is about
    finished: int  # tasks that are done
    tasks: dict[str, int]  # those of them that the networks have, and their places in the sequence
    training: str | None  # the task in training, if any: of that one the state holds the tensors
    digests: dict[str, str]  # of the files, by their names in the run folder

    @classmethod
    def of(cls, folder: RunFolder, names: Sequence[str], progress: "Progress", networks: Networks) -> "Filed":
        roles = [role for role in filed_roles(folder) if role in networks]
        training = names[progress.task] if progress.step else None
        tasks = {name: names.index(name) for name in task_names(networks[roles[0]]) if name != training}
        paths = [folder.shared, *(folder.task_file(index, name) for name, index in tasks.items())]
        digests = {str(path.relative_to(folder.path)): settled_digest(path) for path in paths}
        return cls(roles, progress.task, tasks, training, digests)

    def read_into(self, folder: RunFolder, networks: Networks, method: Method, state: Mapping[str, Tensor]) -> None:
        """Give these networks (banks in, no task yet) what the files hold, and the state's task in training."""
        for name, digest in self.digests.items():
            if not (folder.path / name).is_file() or settled_digest(folder.path / name) != digest:
                raise UserError(f"{folder.path / name}: not the file that the resume state goes with; put it back")
        read_shared(folder, networks)
        for name, index in self.tasks.items():
            for role, network in networks.items():
                read_task(folder, index, name, role, network, method)
        if self.training:
            for role, network in networks.items():
                with fitting(f"{folder.path / 'state'}: does not fit this run"), numbered(network, self.finished):
                    method.restore({role: network}, self.training, with_prefix(role, below(f"task/{role}", state)))


@dataclass
class Progress:
    """Where training stands."""

    task: int = 0  # tasks that are finished
    step: int = 0  # optimizer steps in the task after those
    total: int = 0  # optimizer steps in all
    seconds: float = 0.0  # spent in training steps

    def __post_init__(self) -> None:
        if min(self.task, self.step, self.total, self.seconds) < 0:
            raise ValueError(f"{self} has a negative part")

    @property
    def number(self) -> int:
        """Grows with every state that can be saved."""
        return self.total + self.task


def save_training(
    folder: RunFolder,
    progress: Progress,
    networks: Networks,
    method: Method,
    optimizers: Mapping[str, torch.optim.Optimizer],
    further: Mapping[str, Mapping[str, Tensor]],
    filed: Filed | None = None,
) -> Path:
    """Write all that training needs to go on. `further`: tensors of other parts (EMA) by the part's name.

    filed: of networks whose shared weights and finished tasks are in files, the state holds the task in training
    alone, and the digests of the files.
    """
    tensors = with_prefix("method", method.state_dict())
    for part, state in further.items():
        tensors |= with_prefix(part, state)
    layouts = {}
    for role, network in networks.items():
        if filed and role in filed.roles:
            own = task_state(network, filed.training) if filed.training else {}
            tensors |= with_prefix(f"task/{role}", own)
        else:
            tensors |= with_prefix(f"network/{role}", network.state_dict())
            layouts[role] = task_layout(network)
        if role in optimizers:
            tensors |= with_prefix(f"optimizer/{role}", _optimizer_tensors(optimizers[role], network))
    facts = {"progress": asdict(progress), "layouts": layouts}
    return save_state(folder, progress.number, tensors, facts | ({"filed": asdict(filed)} if filed else {}))


def restore_networks(
    folder: RunFolder,
    networks: Networks,
    method: Method,
    fit: Callable[[nn.Module, Mapping[str, Tensor]], Mapping[str, Tensor]] = lambda network, state: state,
) -> tuple[Progress, dict[str, Tensor] | None]:
    """Give networks and method the newest whole state, if there is one; its tensors serve `restore_optimizers`.

    fit: writes a state for networks whose transforms are others than the state's.
    """
    found = load_state(folder)
    if found is None:
        return Progress(), None
    tensors, facts = found
    problem = f"{folder.path / 'state'}: the resume state is of another experiment"
    from_files: Networks = {}
    if "filed" in facts:
        with fitting(problem):
            filed = Filed(**facts["filed"])
            from_files = {role: networks[role] for role in filed.roles}
        filed.read_into(folder, from_files, method, tensors)
    with fitting(problem):
        for role, network in networks.items():
            if role in from_files:
                continue
            restore_layout(network, facts["layouts"][role])
            network.load_state_dict(fit(network, below(f"network/{role}", tensors)))
        method.load_state_dict(below("method", tensors), networks)
        return Progress(**facts["progress"]), tensors


@contextlib.contextmanager
def fitting(problem: str) -> Iterator[None]:
    """Content that is well formed but does not fit what it is loaded into is a UserError that names the file."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{problem}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{problem} ({type(error).__name__}: {reason[:300]})") from error


def restore_optimizers(
    optimizers: Mapping[str, torch.optim.Optimizer], networks: Networks, tensors: Mapping[str, Tensor]
) -> None:
    """Put the optimizers' state back, parameter by parameter."""
    for role, optimizer in optimizers.items():
        names = _parameter_names(networks[role])
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                own = below(f"optimizer/{role}/{names[parameter]}", tensors)
                # step counters stay on the CPU, where the optimizers keep them, unless these are fused
                optimizer.state[parameter] = {
                    key: value.clone() if key == "step" and not group.get("fused") else _laid_out(value, parameter)
                    for key, value in own.items()
                }


def _laid_out(value: Tensor, parameter: Tensor) -> Tensor:
    """A copy that lies in memory as the parameter does: fused optimizers go through both in the order of memory."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _parameter_names(network: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in network.named_parameters()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    names = _parameter_names(network)
    return {
        f"{names[parameter]}/{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if torch.is_tensor(value)
    }


def write_task(
    folder: RunFolder,
    index: int,
    task: str,
    networks: Networks,
    method: Method,
    further: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> None:
    """Write what the finished task needs for sampling or predicting: tau_t, or the whole network where theta moves.

    further: what else tau_t's file keeps, under names that stand where roles of networks do.

    Shared weights are written once, before the first task's file. A file that is there is never replaced by others.
    """
    path, snapshot = folder.task_file(index, task), method.snapshot(networks, task)
    if snapshot is None:
        role, network = next(iter(networks.items()))
        if _is_new(path, with_prefix(role, network.state_dict())):
            facts = {"layout": json.dumps(task_layout(network))}
            write_task_file(path, task, {role: network.state_dict()}, {}, facts, kind="full")
        return
    states = {role: below(role, snapshot) for role in dict.fromkeys(key.partition("/")[0] for key in snapshot)}
    written = {role: networks[role] for role in states}
    if index == 0 or not folder.shared.exists():
        theta = [with_prefix(role, method.theta(net, task_names(net)[0])) for role, net in written.items()]
        tensors = {key: tensor for state in theta for key, tensor in state.items()}
        if _is_new(folder.shared, tensors):
            write_tensors(folder.shared, tensors, {"format": SHARED_FORMAT})
    if _is_new(path, snapshot):
        bases = {role: tensors_digest(method.theta(net, _before(net, task))) for role, net in written.items()}
        write_task_file(
            path, task, {**states, **(further or {})}, bases, adapters=describe_adapters(networks[next(iter(written))])
        )


def _before(network: nn.Module, task: str) -> str:
    """The task before another in a network; for the first itself, as its own weights are among the shared ones."""
    names = task_names(network)
    return names[max(names.index(task) - 1, 0)]


def _is_new(path: Path, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a file is still to be written; one that an interrupted end of this task left holds the same tensors."""
    if not path.exists():
        return True
    roles = {key.partition("/")[0] for key in tensors}
    there = {key: tensor for key, tensor in read_tensors(path)[0].items() if key.partition("/")[0] in roles}
    if tensors_digest(there) != tensors_digest(tensors):
        raise UserError(
            f"{path}: holds other weights than those just trained, and finished tasks are not overwritten; move the "
            "file away to keep the new ones, or choose another out="
        )
    return False


def read_shared(folder: RunFolder, networks: Networks) -> None:
    """Give networks (banks in) the weights that all tasks share."""
    tensors, _ = read_tensors(folder.shared)
    with fitting(f"{folder.shared}: does not fit this run"):
        for role, network in networks.items():
            load_shared(network, below(role, tensors))


def read_task(
    folder: RunFolder, index: int, task: str, role: str, network: nn.Module, method: Method | None = None
) -> None:
    """Give a network (banks in, no such task yet) what a task's file holds for it, as the method puts it back."""
    path = folder.task_file(index, task)
    file = read_task_file(path)
    if file.task != task:
        raise UserError(f"{path}: holds task {file.task!r}, not {task!r}; put the right file back")
    with fitting(f"{path}: does not fit this run"):
        if file.kind == "full":
            restore_layout(network, json.loads(file.facts["layout"]))
            network.load_state_dict(file.states[role])
            return
        own, base = fingerprint(network), file.bases.get(role)
        if own != base:
            raise UserError(f"made for another base: its fingerprint is {base}, that of {folder.shared} is {own}")
        with numbered(network, index):
            (method or Method()).restore({role: network}, task, with_prefix(role, file.states[role]))


@contextlib.contextmanager
def with_task(
    folder: RunFolder, index: int, task: str, networks: Networks, method: Method | None = None
) -> Iterator[None]:
    """Inside the block the networks have a finished task, from its file where they had let it go."""
    roles = [role for role in filed_roles(folder) if role in networks and task not in task_names(networks[role])]
    for role in roles:
        read_task(folder, index, task, role, networks[role], method)
    try:
        yield
    finally:
        for role in roles:
            remove_task(networks[role], task)


def with_prefix(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names below a prefix, for joining several states in one file."""
    return {f"{prefix}/{key}": tensor for key, tensor in state.items()}


def below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of a joined state that `with_prefix` put there."""
    return {key.removeprefix(f"{prefix}/"): tensor for key, tensor in state.items() if key.startswith(f"{prefix}/")}
