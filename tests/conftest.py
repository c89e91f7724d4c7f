"""Shared by all tests: one thread per process, and the smallest experiments that train."""

import gc
import os
import shutil
import tempfile
import threading
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; subprocesses inherit it
os.environ["EFTGAN_CACHE"] = tempfile.mkdtemp(prefix="eftgan-cache-")  # nobody's own

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """What is imported stays: collecting garbage after every task then takes a hundredth of the time."""
    from eftgan.kinds import KINDS, load_kind

    for name in KINDS:
        load_kind(name)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first optimizer imports much more of torch
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["EFTGAN_CACHE"], ignore_errors=True)


ROOT = Path(__file__).resolve().parent.parent

TINY = [
    "network={stages: 1, base_size: 32, ngf: 4, ndf: 4, z_dim: 8}",
    "adapters={a: 2, b: 2}",
    "training={batch: 4, steps: 6, save_every_steps: 2, log_every_steps: 2}",
    "evaluation={features: none}",
    "tasks=[{name: discs, data: 'shapes:discs', limit: 24}, {name: checks, data: 'shapes:checks', limit: 24}]",
]

TINY_CLASSES = [
    "sources=[{name: shapes/3, data: 'shapes:6'}]",
    "limit=60",
    "network={name: resnet8, size: 16}",
    "adapters={a: 4, b: 0}",
    "training={batch: 10, first: {epochs: 1, learning_rate: 0.05}, log_every_steps: 2}",
]


@pytest.fixture
def tiny(tmp_path):
    """Make a tiny two-task experiment; words override its keys."""

    def make(*words: str, out: str = "run"):
        from eftgan.config import apply_override, build
        from eftgan.gan.experiment import GanExperiment

        data: dict = {"out": str(tmp_path / out)}
        for word in (*TINY, *words):
            apply_override(data, word)
        return build(GanExperiment, data)

    return make


@pytest.fixture
def needs_number_type():
    """Skip where plain layers do not run; some virtual machines name instructions (AMX) that end the process."""

    def check(dtype: torch.dtype) -> None:
        if (child := os.fork()) == 0:
            for size in (16, 512):
                torch.nn.functional.linear(torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype))
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            pytest.skip(f"this machine cannot run a plain nn.Linear in {dtype}")

    return check


@pytest.fixture
def tiny_classes(tmp_path):
    """Make a tiny three-task experiment; words override its keys."""

    def make(*words: str, out: str = "run"):
        from eftgan.classifier.experiment import ClassifierExperiment
        from eftgan.config import apply_override, build

        data: dict = {"out": str(tmp_path / out)}
        for word in (*TINY_CLASSES, *words):
            apply_override(data, word)
        return build(ClassifierExperiment, data)

    return make


@pytest.fixture
def in_threads():
    """Call `work` with each of several processes, played by threads; what each one returned, or its UserError.

    One computes at a time, until it waits for the others: torch traces networks for a whole process.
    """
    from eftgan.data.processes import Processes
    from eftgan.errors import UserError

    class InThread(Processes):
        def exchange(self, content):
            self.brought[self.rank] = content
            self._meet()
            found = list(self.brought)
            self._meet()
            return found

        def tell(self, content=None):
            return self.exchange(content)[0]

        def _meet(self):
            self.turn.release()
            try:
                self.meeting.wait(60)
            finally:
                self.turn.acquire()

    def run(count: int, work):
        common = {"meeting": threading.Barrier(count), "turn": threading.Lock(), "brought": [None] * count}
        results, faults = [None] * count, []

        def start(rank: int) -> None:
            processes = InThread(rank, count)
            vars(processes).update(common)
            with common["turn"]:
                try:
                    results[rank] = work(processes)
                except UserError as error:
                    results[rank] = error
                except BaseException as error:
                    faults.append(error)
                    common["meeting"].abort()

        threads = [threading.Thread(target=start, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return results

    return run


@pytest.fixture
def shared_data() -> Path:
    """Real pictures beside the checkout, where they are."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no shared data beside the checkout")
    return folder
