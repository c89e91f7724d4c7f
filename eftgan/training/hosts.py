"""Several processes, perhaps on several hosts: one that is gone is noticed, and all see one folder."""

import contextlib
import functools
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from socket import gethostname

from torch import distributed

from eftgan.data.processes import Processes
from eftgan.errors import UserError
from eftgan.files import require_files, wait_until, write_text
from eftgan.runfolder import RunFolder

BEAT_EVERY_S = 5.0
SILENCE_S = 30.0  # after which a process is taken for gone
LEFT = "left"
AGAIN = "start the same command on every host again: what was saved is whole, and it goes on from there"
_LOST = re.compile(r"gloo|NCCL|connection (was )?(closed|reset|refused)|broken pipe|socket", re.IGNORECASE)


@contextlib.contextmanager
def connected(processes: Processes) -> Iterator[None]:
    """Inside the block, processes that are gone or cannot be reached end this one with the reason."""
    if processes.count == 1:
        yield
        return
    try:
        with _heart(processes).beating() if "MASTER_ADDR" in os.environ else contextlib.nullcontext():
            yield
    except RuntimeError as error:  # gloo raises nothing more special
        if not (isinstance(error, distributed.DistError) or _LOST.search(str(error))):
            raise
        reason = " ".join(str(error).split())[:200]
        message = f"on {gethostname()}: the connection to another process is lost, it or its host ended ({reason})"
        raise UserError(f"{message}; {AGAIN}") from error


@functools.cache
def _heart(processes: Processes) -> "Heart":
    """One for the life of the process: between two trainings it goes on beating."""
    return Heart(processes)


class Heart:
    """Beats in the store of the launcher's rendezvous, and listens for those of the other processes there.

    A host that loses its power or its network closes no connection: the others would wait for it for hours.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.heard = [time.monotonic()] * processes.count
        self.hosts = [""] * processes.count
        self._met = threading.Event()  # all have been heard once
        self._listening = threading.Event()  # silence of others is an alarm
        self._leaves, self._has_left = threading.Event(), threading.Event()  # in peace, which the others are told
        for work in (self._beat, self._watch):
            threading.Thread(target=work, daemon=True).start()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Inside the block silence of others is noticed; one who left it in peace may fall silent."""
        self.heard = [time.monotonic()] * self.processes.count
        self._leaves.clear()
        self._has_left.clear()
        self._listening.set()
        try:
            yield
            self._listening.clear()
            self._leaves.set()
            self._has_left.wait(BEAT_EVERY_S)
        finally:
            self._listening.clear()

    def _beat(self) -> None:
        """Say again and again that this process is there, and note who else does."""
        keys = [f"eftgan/heart/{rank}" for rank in range(self.processes.count)]
        before, store = [b""] * len(keys), None
        for beat in range(sys.maxsize):
            leaves = self._leaves.is_set()
            with contextlib.suppress(RuntimeError):  # a store that cannot be reached: silence says it
                store = store or _store()
                store.set(keys[self.processes.rank], f"{gethostname()} {LEFT if leaves else beat}")
                found = store.multi_get(keys)  # waits until all have come
                self._met.set()
                for rank, (last, now) in enumerate(zip(before, found, strict=True)):
                    self.hosts[rank], _, beaten = now.decode().partition(" ")
                    if now != last or beaten == LEFT:
                        self.heard[rank] = time.monotonic()
                before = found
            if leaves:
                self._has_left.set()
            while self._has_left.is_set() and self._leaves.is_set():  # until the next block: what was said last holds
                time.sleep(0.2)
            self._leaves.wait(BEAT_EVERY_S)

    def _watch(self) -> None:
        """End this process when another is silent; apart from beating, which may hang for as long."""
        while True:
            time.sleep(1.0)
            silent = [r for r, heard in enumerate(self.heard) if time.monotonic() - heard > SILENCE_S]
            if silent and self._met.is_set() and self._listening.is_set():
                print(f"error on {gethostname()}: {self._silence(silent)}; {AGAIN}", file=sys.stderr, flush=True)
                os._exit(2)

    def _silence(self, silent: Sequence[int]) -> str:
        others = [rank for rank in silent if rank != self.processes.rank]
        where = sorted({self.hosts[rank] for rank in others} - {""})
        which = f"process{'es' * (len(others) > 1)} {', '.join(map(str, others))}"
        return f"nothing was heard of {which}{' on ' * bool(where)}{', '.join(where)} for {SILENCE_S:.0f} seconds"


def _store() -> distributed.TCPStore:
    """A connection of its own to the store through which the launcher brought the processes together."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    timeout = timedelta(seconds=SILENCE_S)
    return distributed.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timeout)


def see_alike(processes: Processes, folders: Iterable[RunFolder]) -> None:
    """Wait until all processes see the files of runs that the first one sees."""
    if processes.count == 1:
        return
    sizes: dict[Path, int] = {}
    with processes.agreeing():
        if processes.is_first:
            sizes = {path: path.stat().st_size for folder in folders for path in _of_run(folder)}
    sizes = processes.tell(sizes)
    with processes.agreeing():
        if not processes.is_first:
            require_files(sizes)


def _of_run(folder: RunFolder) -> list[Path]:
    named = [folder.config, folder.facts, folder.shared, *folder.task_files(), *folder.state_files()]
    return [path for path in named if path.is_file()]


def require_common_folder(processes: Processes, folder: RunFolder) -> None:
    """Refuse to train where the hosts have a folder each; called by all while the first process holds the lock."""
    if processes.count == 1:
        return
    mark, content = folder.path / ".common", uuid.uuid4().hex
    if processes.is_first:
        write_text(mark, content)
    content = processes.tell(content)
    try:
        with processes.agreeing():
            if not wait_until(lambda: mark.is_file() and mark.read_text() == content, mark):
                raise UserError(
                    f"{folder.path} on {gethostname()} is not the folder that the first process writes to; all hosts "
                    "need one folder on a file system that they share: name it with out="
                )
    finally:
        if processes.is_first:
            mark.unlink(missing_ok=True)


def remove_if_new(folder: RunFolder) -> None:
    """Leave nothing of a run that was refused before it began."""
    if folder.path.is_dir() and [path.name for path in folder.path.iterdir()] == [".lock"]:
        (folder.path / ".lock").unlink()
        folder.path.rmdir()
