"""Two hosts: network namespaces joined by a virtual cable, or two launchers on loopback where that is not allowed."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from harness import Ended, free_port

NAMES = ("a", "b")
STOPS_WITHIN_S = 60  # a host whose partner is gone
ENDS_WITHIN_S = 300


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class TwoHosts:
    """Starts one launcher on each, and kills or cuts off a host."""

    prefix: str  # of the namespaces' names; none: loopback
    port: int
    running: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def are_apart(self) -> bool:
        return bool(self.prefix)

    def address(self, host: str) -> str:
        return f"10.77.0.{NAMES.index(host) + 1}" if self.are_apart else "127.0.0.1"

    def start(self, command: Sequence[str], folders: Sequence[Path]) -> None:
        """The same command on both, host a in the first folder, host b in the last."""
        for host, folder in zip(NAMES, (folders[0], folders[-1]), strict=True):
            within = ["ip", "netns", "exec", f"{self.prefix}{host}"] if self.are_apart else []
            interface = f"{self.prefix}{host}" if self.are_apart else "lo"
            launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1"]
            launcher += ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"{self.address('a')}:{self.port}"]
            launcher += ["--rdzv_conf", f"is_host={host == 'a'}", "--local_addr", self.address(host)]
            self.running[host] = subprocess.Popen(
                [*within, *launcher, *command], cwd=folder, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface},
            )  # fmt: skip

    def end(self, host: str, timeout: float = ENDS_WITHIN_S) -> Ended:
        """Wait for a host's launcher; it must end by itself."""
        out, err = self.running[host].communicate(timeout=timeout)
        return Ended(self.running.pop(host).returncode, out, err)

    def end_cut_off(self, host: str) -> Ended:
        """Wait until a host's processes have ended by themselves; torchrun goes on asking for the other one."""
        launcher, until = psutil.Process(self.running[host].pid), time.monotonic() + STOPS_WITHIN_S
        while any(map(_is_alive, launcher.children())):
            assert time.monotonic() < until, f"host {host} did not stop within {STOPS_WITHIN_S} seconds"
            time.sleep(0.1)
        launcher.kill()
        return self.end(host)

    def run(self, command: Sequence[str], *folders: Path) -> list[Ended]:
        """To the end, on both."""
        self.start(command, folders)
        return [self.end(host) for host in NAMES]

    def kill(self, host: str) -> None:
        """As if its power failed, but for the connections, which the kernel closes."""
        launcher = psutil.Process(self.running[host].pid)
        for process in (launcher, *launcher.children(recursive=True)):
            process.kill()

    def cut(self) -> None:
        """Pull the cable: no connection is closed."""
        ip("-n", f"{self.prefix}b", "link", "set", f"{self.prefix}b", "down")

    def join(self) -> None:
        for host in NAMES:
            ip("-n", f"{self.prefix}{host}", "link", "set", f"{self.prefix}{host}", "up")

    def stop(self) -> None:
        for host in list(self.running):
            self.kill(host)
            self.running.pop(host).communicate()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    hosts = TwoHosts(f"eft{os.getpid()}" if _cable_allowed() else "", free_port())
    try:
        if hosts.are_apart:
            _lay_cable(hosts)
        yield hosts
    finally:
        hosts.stop()
        for host in NAMES if hosts.are_apart else ():
            subprocess.run(["ip", "netns", "del", f"{hosts.prefix}{host}"], check=False)


def _lay_cable(hosts: TwoHosts) -> None:
    a, b = (f"{hosts.prefix}{host}" for host in NAMES)
    for name in (a, b):
        ip("netns", "add", name)
    ip("link", "add", a, "netns", a, "type", "veth", "peer", "name", b, "netns", b)
    for host, name in zip(NAMES, (a, b), strict=True):
        ip("-n", name, "address", "add", f"{hosts.address(host)}/24", "dev", name)
        ip("-n", name, "link", "set", "lo", "up")
    hosts.join()


def _cable_allowed() -> bool:
    """Whether there is iproute2 and the right to make a network namespace."""
    name = f"eft{os.getpid()}try"
    if shutil.which("ip") is None or subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    ip("netns", "del", name)
    return True
