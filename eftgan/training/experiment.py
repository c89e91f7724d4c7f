"""What the experiments of every kind have in common, and how one meets the folder of an earlier run."""

import fnmatch
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field
from torch import nn
from typing_extensions import Doc

from eftgan import __version__
from eftgan.adapters import AdapterConfig
from eftgan.adapters.insert import layer_names
from eftgan.config import FREE_KEYS, Count, Local, Seed, dump, keys_of_other_kinds, load, plain
from eftgan.errors import UserError
from eftgan.files import write_json, write_text
from eftgan.methods import Eft, Method
from eftgan.names import INITS, NEAREST
from eftgan.runfolder import DIVERGED, RunFolder

LOWERED = ("_rate", ".strength", ".r1")  # keys that may be lowered when a loss was not finite


@dataclass(frozen=True)
class Adapters:
    """The transformations after every convolution."""

    a: Annotated[int, Field(ge=0), Doc("group size of the 3x3 convolution; 0 leaves it out")] = 32
    b: Annotated[int, Field(ge=0), Doc("group size of the 1x1 convolution; 0 leaves it out")] = 16
    mode: Annotated[Literal["serial", "parallel"], Doc("after the convolution, or beside it")] = "serial"
    bias: Annotated[bool, Doc("whether both carry a bias, as in the paper's counts")] = True
    exclude: Annotated[list[str], Doc("patterns of layer names that stay shared")] = field(default_factory=list)
    sizes: Annotated[dict[str, tuple[int, int]], Doc("pattern of layer names -> its own [a, b]")] = field(
        default_factory=dict
    )

    kind: Annotated[
        str,
        Doc(
            "which transformation: eft, adafm, lora, llora, left, residual (docs/transforms.md), batche, ccll, mask; "
            "some methods choose it themselves"
        ),
    ] = "eft"
    options: Annotated[dict[str, int | float | str | bool], Doc("what only this kind knows")] = field(
        default_factory=dict
    )

    def contain(self, other: "Adapters") -> bool:
        """Whether transforms of the other sizes are a special case of these: the same ones or narrower groups."""
        alike = all(getattr(self, key) == getattr(other, key) for key in ("kind", "options", "mode", "bias", "exclude"))
        pairs = [(self.a, self.b), *self.sizes.values()]
        narrower = all(_divides(other.a, a) and _divides(other.b, b) for a, b in pairs)
        return alike and (self == other or (self.mode == "serial" and not other.sizes and narrower))

    def config(self, heads: Sequence[str] = ()) -> AdapterConfig:
        return AdapterConfig(
            a=self.a,
            b=self.b,
            mode=self.mode,
            bias=self.bias,
            heads=tuple(heads),
            exclude=tuple(self.exclude),
            sizes=dict(self.sizes),
            kind=self.kind,
            options=dict(self.options),
        )


def refuse_unmatched_patterns(adapters: Adapters, networks: Mapping[str, nn.Module]) -> None:
    """Refuse a pattern that names no layer of any network: most likely it is mistyped."""
    names = {role: layer_names(network) for role, network in networks.items()}
    for key, patterns in (("exclude", adapters.exclude), ("sizes", adapters.sizes)):
        for pattern in patterns:
            if not any(fnmatch.filter(own, pattern) for own in names.values()):
                some = "; ".join(f"{role}: {', '.join(own[:4])}, ..." for role, own in names.items())
                raise UserError(f"adapters.{key}: {pattern!r} names no convolution or linear layer ({some})")


def _divides(size: int, wider: int) -> bool:
    return size == wider or (0 < size < wider and wider % size == 0)


@dataclass(frozen=True, kw_only=True)
class Training:
    """How every task is trained: what all kinds have."""

    batch: Annotated[Count, Doc("images per step and process")]
    mixed_precision: Annotated[
        Literal["no", "fp16", "bf16"],
        BeforeValidator(lambda given: "no" if given is False else given),  # an unquoted no is YAML's false
        Doc("16-bit products where the device has them; a CPU gains from bf16 where it has AVX-512 BF16 or AMX"),
    ] = "no"
    workers: Annotated[int, Field(ge=0, le=64), Doc("loader processes")] = 0
    threads: Annotated[Count | None, Doc("CPU threads per process; null: as many as the run was begun with")] = None
    processes: Annotated[Count | None, Doc("go on with so many; null: with those that the run was begun with")] = None
    log_every_steps: Annotated[Count, Doc("how often losses are shown and sent to the trackers")] = 10
    save_every_steps: Annotated[int, Field(ge=0), Doc("how often the resume state is written; 0: after tasks only")] = (
        500
    )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A network trained on one task after another. Subclasses say on what."""

    kind: ClassVar[str]  # its key in KINDS
    noun: ClassVar[str]  # what people call what is trained

    out: Annotated[str, Local(), Doc("the run's folder; an unfinished run there is continued")] = "runs/run"
    seed: Annotated[Seed, Doc("fixes weights, order of data and noise")] = 0
    adapters: Annotated[Adapters, Doc("the task-specific transformations")] = field(default_factory=Adapters)
    method: Annotated[Method, Doc("the continual-learning method")] = field(default_factory=Eft)
    training: Training
    log_with: Annotated[
        list[str], Doc("Accelerate's trackers, e.g. [tensorboard]: they get losses, scores, growth and sample grids")
    ] = field(default_factory=list)
    held_out: Annotated[
        float,
        Field(ge=0, lt=1),
        Doc("share of each task's training images that is not trained on; scores are then measured on it"),
    ] = 0.0
    start: Annotated[
        str | None, Local(blank=None), Doc("a one-task run whose first task is taken over instead of trained")
    ] = None
    title: Annotated[str | None, Doc("what reports call this run (default: the method's name)")] = None

    def __post_init__(self) -> None:
        method = self.method
        if not method.suits(self.kind):
            raise UserError(f"method.name: {method.name} is for a {method.only_for}, not for a {self.kind}")
        for key, other in keys_of_other_kinds(self.method, self.kind).items():
            raise UserError(f"method.{key} has no effect on a {self.kind}: it is for a {other}; leave it out")

    def check_given(self, words: Sequence[str]) -> None:
        """Refuse `key=value` words that were typed for this experiment and change nothing in it."""

    @property
    def task_names(self) -> list[str]:
        """Names of the tasks in order."""
        raise NotImplementedError

    @property
    def sequence(self) -> Sequence[Any]:
        """The entries of the config that the tasks come from; further ones may be added to a run."""
        raise NotImplementedError

    def init_of(self, task: str) -> str:
        """Where a task's own parts start."""
        return self.method.init

    def is_free(self, key: str) -> bool:
        """Whether a run may go on with another value of a key: it does not change what is learned."""
        return key.startswith(FREE_KEYS)

    def check_start(self, other: Self) -> None:
        """Refuse a run whose first task is not the one that this experiment would train."""
        raise NotImplementedError


def check_inits(experiment: Experiment) -> None:
    """Refuse a later task that would start neither in a known way nor from an earlier one."""
    earlier: list[str] = []
    for name in experiment.task_names:
        known, init = [*INITS, NEAREST, *earlier], experiment.init_of(name)
        if earlier and init not in known:
            key = "method.init" if init == experiment.method.init else "init"
            raise UserError(f"task {name}: {key} {init!r} is unknown there; choose from: {', '.join(known)}")
        earlier.append(name)


def start_folder(
    experiment: Experiment,
    folder: RunFolder,
    command: str,
    data: Mapping[str, Mapping[str, str]],
    nearest: Mapping[str, Any],
    resources: Mapping[str, int],
    changes: Mapping[str, Any],
) -> None:
    """Write config.yaml and run.json.

    data: by task or source, its `data_record`. nearest: by task, what `nearest_earlier` found where a task is to
    start from the nearest one. resources: processes and threads. changes: by key, the values before and from now on,
    for the run's history.
    """
    known = folder.read_facts()
    write_text(folder.config, dump(experiment))
    facts = {
        "name": folder.path.name,
        "kind": experiment.kind,
        "noun": experiment.noun,
        "method": experiment.method.name,
        "label": experiment.method.title,
        "seed": experiment.seed,
        "tasks": experiment.task_names,
        "command": command,
        "data": _data_facts(folder.data_records(), data),
        "versions": versions(),
        **resources,
    }
    if experiment.title:
        facts["title"] = experiment.title
    if experiment.held_out:
        facts["held_out"] = experiment.held_out
    if nearest or known.get("nearest"):
        facts["nearest"] = known.get("nearest", {}) | {task: asdict(found) for task, found in nearest.items()}
    if changes or known.get("history"):
        since = {"state": folder.state_files()[-1].stem if folder.state_files() else None, "changed": changes}
        facts["history"] = [*known.get("history", []), *([since] if changes else [])]
    write_json(folder.facts, facts)


def _data_facts(
    before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Any]]:
    """Where every task's data is; what the run resolved before stays, whatever folder it is continued from."""
    facts = {name: dict(record) for name, record in before.items()}
    for name, new in now.items():
        old = facts.setdefault(name, {})
        if old.get("typed") != new["typed"]:
            old.pop("set", None)
            old.update(new)
        elif "set" in new:  # made again, elsewhere perhaps
            old["set"] = new["set"]
    return facts


def start_of(experiment: Experiment) -> RunFolder | None:
    """The run that the first task is taken from, checked to be the same first task."""
    if experiment.start is None:
        return None
    folder = RunFolder(Path(experiment.start))
    if not folder.config.is_file():
        raise UserError(f"start={experiment.start}: no run there (config.yaml is missing)")
    if experiment.method.follows_training or experiment.method.fresh:
        raise UserError(f"start={experiment.start}: method {experiment.method.name} must train the first task itself")
    other = load(type(experiment), folder.config)
    if len(other.task_names) != 1:
        raise UserError(f"start={experiment.start}: it must have one task, the first of this sequence")
    if other.method.rewrites:
        raise UserError(
            f"start={experiment.start}: {other.method.name} writes other weights into a finished task than it has "
            "trained; start from a run of finetune"
        )
    mine, its = (each.method.own_first_task for each in (experiment, other))
    if mine != its:
        theirs, wanted = (", ".join(f"{k}={v}" for k, v in own.items()) or "the usual settings" for own in (its, mine))
        raise UserError(f"start={experiment.start}: its first task was trained with {theirs}, not with {wanted}")
    experiment.check_start(other)
    if not folder.task_file(0, other.task_names[0]).exists():
        raise UserError(f"start={experiment.start}: its task is not trained to the end; run it first")
    if not folder.state_files():
        raise UserError(f"{folder.path / 'state'}: no resume state to take the first task from; train that run again")
    return folder


def refuse_differences(experiment: Experiment, other: Experiment, keys: Sequence[str]) -> None:
    """Refuse to start from a run that differs in what makes the first task."""
    for key in keys:
        if getattr(other, key) != getattr(experiment, key):
            raise UserError(f"start={experiment.start}: it has another {key}, and so another first task")


def refuse_other_experiment(before: Experiment, now: Experiment, folder: RunFolder) -> dict[str, list[float]]:
    """A run folder holds one experiment; it may be given further tasks, and be told where its data is now.

    After a loss that was not finite it may go on with lower rates: those that changed are returned, before and after.
    """
    diverged, lowered = DIVERGED in folder.read_facts(), {}
    old, new = _flat(plain(before)), _flat(plain(now))
    names = before.task_names
    if len(now.task_names) < len(names):
        raise UserError(
            f"{folder.path}: this run has {len(names)} tasks, the config {len(now.task_names)}; choose another out="
        )
    for key in {**old, **new}:
        top, *place = key.split(".")
        further = top in ("tasks", "sources") and (int(place[0]) >= len(before.sequence) or place[-1] == "take")
        moved = top in ("tasks", "sources", "auxiliary") and place[-1:] == ["data"]
        if old.get(key) == new.get(key) or further or moved or now.is_free(key):
            continue
        if diverged and key.endswith(LOWERED) and _is_lower(new.get(key), old.get(key)):
            lowered[key] = [old[key], new[key]]
        else:
            raise UserError(
                f"{folder.path}: holds a run with {key}={json.dumps(old.get(key))}, now it is "
                f"{json.dumps(new.get(key))}; choose another out= or remove the folder"
            )
    if now.task_names[: len(names)] != names:
        raise UserError(f"{folder.path}: further tasks must come after this run's {', '.join(names)}")
    return lowered


def _is_lower(new: Any, old: Any) -> bool:
    return all(isinstance(value, int | float) for value in (new, old)) and new < old


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings and lists as dotted keys."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        return {prefix.removesuffix("."): data}
    return {key: value for name, inner in items for key, value in _flat(inner, f"{prefix}{name}.").items()}


def versions() -> dict[str, str]:
    """What the figures of a run depend on."""
    packages = ("torch", "torchvision", "accelerate", "pytorch-fid", "lmdb", "safetensors", "pillow")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"eftgan": __version__, "python": platform.python_version(), **found}
