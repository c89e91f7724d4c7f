"""A task's file: its tensors, network by network, and what they belong to. One format, written by everybody.

Tensors are named "role/layer.tensor"; a role is what a network does in a training ("generator"), "network" where
there is but one. The files of earlier versions are read as well.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from torch import Tensor

from eftgan.errors import UserError
from eftgan.tensors import read_tensors, tensors_digest, write_tensors

FORMAT = "eftgan-task-2"
WITHOUT_ROLES = "eftgan-task-1"  # earlier: one network, its tensors without a role
OF_A_RUN = "eftgan-run-task-1"  # earlier: written by training, its tensors named as today
NETWORK = "network"
VALUES = "theta/"  # before the name of a shared parameter: values that the task adds to it, not tensors of its own

FileKind: TypeAlias = Literal["task", "full"]
States: TypeAlias = Mapping[str, Mapping[str, Tensor]]  # by role, a state dict


@dataclass(frozen=True)
class TaskFile:
    """What a task's file holds, all of it by role."""

    task: str
    kind: FileKind  # "task": what the task adds to shared weights; "full": whole networks
    states: dict[str, dict[str, Tensor]]
    bases: dict[str, str]  # fingerprints of the shared weights that the states belong to
    adapters: dict[str, str] = field(default_factory=dict)  # kind and settings of the transforms
    facts: dict[str, str] = field(default_factory=dict)  # whatever else its writer noted


RESERVED = ("format", "task", "kind", "bases", "adapters", "digest")


def write_task_file(
    path: str | os.PathLike[str],
    task: str,
    states: States,
    bases: Mapping[str, str],
    facts: Mapping[str, str] | None = None,
    *,
    kind: FileKind = "task",
    adapters: Mapping[str, str] | None = None,
) -> None:
    """Write a task's file, atomically. `facts` are further lines of its metadata."""
    facts = facts or {}
    if taken := sorted({*facts} & {*RESERVED}):
        raise ValueError(f"facts of a task file cannot be called {taken[0]!r}")
    if bad := [role for role in (*states, *bases) if "/" in role or not role]:
        raise ValueError(f"{bad[0]!r} cannot be a role: it stands before the / in the names of tensors")
    tensors = {f"{role}/{key}": tensor for role, state in states.items() for key, tensor in state.items()}
    metadata = {
        "format": FORMAT,
        "task": task,
        "kind": kind,
        "bases": json.dumps(dict(bases)),
        "adapters": json.dumps(dict(adapters or {})),
        "digest": tensors_digest(tensors),
    }
    write_tensors(path, tensors, {**facts, **metadata})


def read_task_file(path: str | os.PathLike[str]) -> TaskFile:
    """Read a task's file of this or an earlier format; its content is checked against its digest."""
    tensors, metadata = read_tensors(path)
    form = metadata.get("format")
    if form not in (FORMAT, WITHOUT_ROLES, OF_A_RUN):
        raise UserError(f"{path}: not a task file of this version (format {form!r}, not {FORMAT!r})")
    if (form == FORMAT or "digest" in metadata) and metadata.get("digest") != tensors_digest(tensors):
        raise UserError(f"{path}: its content does not match its digest; put a whole copy back")
    try:
        return _without_roles(tensors, metadata) if form == WITHOUT_ROLES else _with_roles(tensors, metadata)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: its metadata is damaged ({type(error).__name__}: {error})") from error


def _with_roles(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> TaskFile:
    kind: FileKind = "full" if metadata["kind"] == "full" else "task"
    if metadata["kind"] not in get_args(FileKind):
        raise ValueError(f"kind {metadata['kind']!r}")
    bases = _strings(metadata.get("bases", "{}"))
    states: dict[str, dict[str, Tensor]] = {role: {} for role in bases}
    for key, tensor in tensors.items():
        role, slash, name = key.partition("/")
        if not slash:
            raise ValueError(f"tensor {key!r} has no role")
        states.setdefault(role, {})[name] = tensor
    facts = {key: value for key, value in metadata.items() if key not in RESERVED}
    return TaskFile(metadata["task"], kind, states, bases, _strings(metadata.get("adapters", "{}")), facts)


def _without_roles(tensors: dict[str, Tensor], metadata: Mapping[str, str]) -> TaskFile:
    adapters = {"kind": "eft"} | {key: metadata[key] for key in ("mode", "a", "b") if key in metadata}
    return TaskFile(metadata["task"], "task", {NETWORK: tensors}, {NETWORK: metadata["base"]}, adapters)


def _strings(text: str) -> dict[str, str]:
    return {str(key): str(value) for key, value in json.loads(text).items()}
