"""Commands that are disturbed and repeated until they end, and the digest of everything they leave."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from faults import Plan

from eftgan.files import file_digest
from eftgan.tensors import read_tensors, tensors_digest

ROOT = Path(__file__).parents[2]
TRAIN = [
    str(ROOT / "train_gan.py"),
    "out=run",
    "network={stages: 1, base_size: 32, ngf: 4, ndf: 4, z_dim: 8}",
    "adapters={a: 2, b: 2}",
    "training={batch: 4, steps: 3, save_every_steps: 2, log_every_steps: 2, snapshot_every_steps: 2}",
    "evaluation={features: random, samples: 8}",
    "tasks=[{name: discs, data: 'shapes:discs', limit: 16}, {name: checks, data: 'shapes:checks', limit: 16}]",
]
LEARN = [
    str(ROOT / "train_classifier.py"),
    "out=run",
    "sources=[{name: shapes/2, data: 'shapes:6'}]",
    "limit=24",
    "network={name: resnet8, size: 16}",
    "adapters={a: 2, b: 2}",
    "training={batch: 4, first: {epochs: 1}, save_every_steps: 2, log_every_steps: 2}",
]
CONVERT = [*TRAIN, "evaluation={features: none}", "training.steps=1", "tasks=[{name: photos, data: raw}]"]
EVALUATE = ["eftgan", "evaluate", "run", "--features", "random", "--fid-samples", "12"]
PREPARE = ["data_prep", "folder", "raw", "set.lmdb", "--size", "32", "--workers", "0"]
WORK = [  # one worker of a comparison; the first task is trained once, and both methods begin with it
    *("eftgan", "compare", str(ROOT / "configs/gan/shapes.yaml"), "--methods", "finetune,eft", "--out", "compared"),
    *TRAIN[2:],
    "--worker",
]
PROGRAMS = {  # by name: the command, and the name of what it starts from
    "train": (TRAIN, "nothing"),
    "learn-eft": ([*LEARN, "method={name: eft, margin: {statistics: stored, delta: 1000}}"], "nothing"),
    "learn-si": ([*LEARN, "method={name: si}"], "nothing"),  # remembers the path of the task in training
    "learn-lwf": ([*LEARN, "method={name: lwf}"], "nothing"),  # remembers the network before it
    "evaluate": (EVALUATE, "train"),
    "prepare": (PREPARE, "pictures"),
    "convert": (CONVERT, "pictures"),  # training on a folder, which is converted first
    "work": (WORK, "nothing"),
}

UNDISTURBED = Plan()
MAY_DIFFER = (".lock", "lock.mdb")
NOTES = ("known", "locks")  # of the cache: they are named by where its sources lie and when they changed


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str


@dataclass
class Server:
    """Runs commands in forks of one process that has everything imported."""

    folder: Path  # for what the commands print
    process: subprocess.Popen = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "server.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def run(
        self, command: Sequence[str], cwd: Path, plan: Plan = UNDISTURBED, processes: int = 1, workers: int = 1
    ) -> Ended:
        streams = {name: str(self.folder / name) for name in ("stdout", "stderr")}
        for path in streams.values():
            Path(path).write_bytes(b"")
        job = {"command": list(command), "cwd": str(cwd), "plan": asdict(plan), **streams}
        job |= {"processes": processes, "workers": workers, "port": free_port()}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return Ended(code, *(Path(path).read_text() for path in streams.values()))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def points(self, command: Sequence[str], cwd: Path) -> list[str]:
        """Run undisturbed; the names of all points at which it could have been disturbed."""
        log = self.folder / "points"
        log.unlink(missing_ok=True)
        ended = self.run(command, cwd, Plan(log=str(log)))
        assert ended.code == 0, ended.err
        return log.read_text().splitlines()

    def run_to_the_end(self, command: Sequence[str], cwd: Path, kills: Sequence[int]) -> None:
        """One kill after the other, then undisturbed: the same command each time."""
        for at in (*kills, None):
            ended = self.run(command, cwd, Plan(at))
            if ended.code == 2 and "exists already" in ended.err:
                return  # a set that is whole needs no second preparation
            assert ended.code == 0 or (at is not None and ended.code == -9), ended.err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def choose(points: list[str], count: int, seed: int) -> list[int]:
    """Points spread over the kinds (steps, writes, renames, ...), the same for the same seed."""
    rng = random.Random(seed)
    by_kind: dict[str, list[int]] = {}
    for index, name in enumerate(points):
        by_kind.setdefault(name, []).append(index)
    kinds = [rng.sample(places, len(places)) for places in by_kind.values()]
    rng.shuffle(kinds)
    rows = max(map(len, kinds))
    return [kind[row] for row in range(rows) for kind in kinds if row < len(kind)][:count]


def everything(folder: Path) -> dict[str, str]:
    """A digest of every file below a folder, hidden ones and leftovers included.

    Three things may differ: which process held the lock, the seconds that a state says training took, and where the
    folder is.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in MAY_DIFFER]
    kept = [path for path in files if path.parent.name not in NOTES]
    return {str(path.relative_to(folder)): _digest(path, folder) for path in kept}


def _digest(path: Path, folder: Path) -> str:
    if path.name == "run.json":  # it keeps the whole path of its data
        return path.read_text().replace(str(folder.resolve()), "")
    if path.parent.name != "state":
        return file_digest(path)
    tensors, metadata = read_tensors(path)
    facts = json.loads(metadata["facts"])
    facts["progress"].pop("seconds")
    return tensors_digest(tensors) + json.dumps(facts, sort_keys=True)


def differences(folder: Path, reference: dict[str, str]) -> list[str]:
    """Files that are missing, more, or other than in the reference."""
    found = everything(folder)
    return sorted(name for name in {**found, **reference} if found.get(name) != reference.get(name))


def fresh_copy(source: Path, target: Path) -> Path:
    """The same content under another path, so that relative names stay the same."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target)) if source.exists() else target
