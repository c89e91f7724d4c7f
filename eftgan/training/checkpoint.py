"""A run's folder: exact resume states, shared weights, task files. Safetensors and JSON only, written atomically.

    run.json  config.yaml  scores.jsonl  report.html
    shared.safetensors            theta, once (methods that freeze it)
    tasks/02-birds.safetensors    tau_t; or the whole generator, where theta goes on changing ("kind": "full")
    state/00003000.safetensors    everything that training needs to go on; the last two are kept
    samples/after-02-birds/01-cats.png
"""

import contextlib
import fcntl
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eftgan.errors import UserError
from eftgan.tensors import read_tensors, tensors_digest, write_tensors

STATES_KEPT = 2


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def facts(self) -> Path:
        return self.path / "run.json"

    @property
    def scores(self) -> Path:
        return self.path / "scores.jsonl"

    @property
    def shared(self) -> Path:
        return self.path / "shared.safetensors"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    def task_file(self, index: int, name: str) -> Path:
        return self.path / "tasks" / f"{index + 1:02d}-{name}.safetensors"

    def sample_grid(self, tasks: list[str], after: int, tested: int) -> Path:
        folder = f"after-{after + 1:02d}-{tasks[after]}"
        return self.samples / folder / f"{tested + 1:02d}-{tasks[tested]}.png"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against a second writer; the lock ends with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = open(self.path / ".lock", "a+")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{self.path}: the run folder cannot be written ({error.strerror})") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                handle.seek(0)
                raise UserError(
                    f"{self.path}: another process (id {handle.read().strip() or 'unknown'}) is writing this run; "
                    "wait for it or choose another out="
                ) from error
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            yield

    def save_state(self, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
        """Write a resume state; older ones than the last two go."""
        path = self.path / "state" / f"{number:08d}.safetensors"
        write_tensors(path, tensors, {"facts": json.dumps(facts), "digest": tensors_digest(tensors)})
        for old in self.state_files()[:-STATES_KEPT]:
            old.unlink(missing_ok=True)
        return path

    def state_files(self) -> list[Path]:
        """Resume states, oldest first."""
        return sorted((self.path / "state").glob("[0-9]*.safetensors"))

    def load_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest whole state; a damaged one is passed over with a warning."""
        for path in reversed(self.state_files()):
            try:
                tensors, metadata = read_tensors(path)
                if tensors_digest(tensors) != metadata.get("digest"):
                    raise UserError(f"{path}: its content does not match its digest")
                return tensors, json.loads(metadata["facts"])
            except (UserError, KeyError, ValueError) as error:
                warnings.warn(f"skipped a damaged resume state: {error}", stacklevel=2)
        return None


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Tensor]:
    """An optimizer's state by parameter name; `names`: id of a parameter -> its name."""
    return {
        f"{names[id(parameter)]}/{key}": value if torch.is_tensor(value) else torch.tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, names: Mapping[int, str], state: Mapping[str, Tensor]) -> None:
    """Put an optimizer's state back."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            prefix = f"{names[id(parameter)]}/"
            own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            if own:
                optimizer.state[parameter] = {
                    # step counters stay on the CPU, as the optimizers keep them
                    key: value.clone() if key == "step" else value.to(parameter.device).clone()
                    for key, value in own.items()
                }


def with_prefix(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names below a prefix, for joining several states in one file."""
    return {f"{prefix}/{key}": tensor for key, tensor in state.items()}


def below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of a joined state that `with_prefix` put there."""
    return {key.removeprefix(f"{prefix}/"): tensor for key, tensor in state.items() if key.startswith(f"{prefix}/")}
