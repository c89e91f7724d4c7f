"""Several processes on several hosts, played by threads: one folder for all, mistakes told to all, silence noticed."""

import datetime
import os
import shutil
import threading
import time

import pytest
from torch import distributed

from eftgan import files
from eftgan.data.processes import Processes
from eftgan.errors import UserError
from eftgan.runfolder import RunFolder
from eftgan.training import hosts
from eftgan.training.hosts import Heart, connected, remove_if_new, require_common_folder, see_alike


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(files, "PATIENCE_S", 0.6)


def test_what_one_process_refuses_all_refuse(in_threads):
    def work(processes):
        with processes.agreeing():
            if processes.rank == 1:
                raise UserError("no data here")

    first, second, third = in_threads(3, work)
    assert str(second) == "no data here"
    assert str(first) == str(third)
    assert str(first).startswith("process 1 on ")
    assert str(first).endswith(": no data here")


@pytest.mark.parametrize("common", [True, False])
def test_hosts_with_a_folder_each_are_refused_before_anything_is_written(in_threads, impatient, tmp_path, common):
    def work(processes):
        folder = RunFolder(tmp_path / ("run" if common else str(processes.rank)) / "run")
        if processes.is_first:
            folder.path.mkdir(parents=True)
            (folder.path / ".lock").touch()
        try:
            require_common_folder(processes, folder)
        finally:
            if processes.is_first:
                remove_if_new(folder)

    ended = in_threads(2, work)
    if common:
        assert ended == [None, None]
    else:
        assert all("is not the folder that the first process writes to" in str(error) for error in ended)
    assert not list(tmp_path.rglob(".*"))
    assert not list(tmp_path.glob("*/run"))


def test_a_folder_with_a_run_in_it_is_left_as_it_is(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "config.yaml").touch()
    remove_if_new(RunFolder(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_process_waits_until_it_sees_what_the_first_one_sees(in_threads, tmp_path):
    """As on a network file system, which shows what was there a while ago."""
    (tmp_path / "0" / "state").mkdir(parents=True)
    (tmp_path / "0" / "state" / "00000004.safetensors").write_bytes(b"state")
    seen = tmp_path / "seen"  # the second host's view of the folder `0`, empty at first
    seen.mkdir()
    threading.Timer(1.0, lambda: shutil.copytree(tmp_path / "0", seen, dirs_exist_ok=True)).start()

    def work(processes):
        if not processes.is_first:  # the names are those of the first; here they lead to the view
            tell = processes.tell
            vars(processes)["tell"] = lambda content=None: {
                seen / path.relative_to(tmp_path / "0"): size for path, size in tell(content).items()
            }
        see_alike(processes, [RunFolder(tmp_path / "0")])
        return sorted(path.name for path in seen.rglob("*.safetensors"))

    assert in_threads(2, work)[1] == ["00000004.safetensors"]


def test_files_that_never_appear_are_named(impatient, tmp_path):
    with pytest.raises(UserError, match=r"state\.x is not as the first process sees it; all hosts need one folder"):
        files.require_files({tmp_path / "state.x": 5})


def test_a_lost_connection_is_told_with_what_to_do(monkeypatch):
    class Still:
        def beating(self):
            return threading.Lock()

    monkeypatch.setattr(hosts, "_heart", lambda processes: Still())
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4711")
    told = r"connection to another process is lost.*10\.0\.0\.2.*start the same command"
    with pytest.raises(UserError, match=told), connected(Processes(0, 2)):
        raise lost
    with pytest.raises(RuntimeError, match="shapes do not fit"), connected(Processes(0, 2)):
        raise RuntimeError("shapes do not fit")
    with pytest.raises(RuntimeError, match="gloo"), connected(Processes()):
        raise lost


def test_a_process_that_falls_silent_is_noticed_and_one_that_left_in_peace_is_not(monkeypatch, capfd):
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, timeout=datetime.timedelta(seconds=60))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.setattr(hosts, "BEAT_EVERY_S", 0.05)
    monkeypatch.setattr(hosts, "SILENCE_S", 1.0)
    ended = threading.Event()

    def note(code: int):
        ended.set()
        threading.Event().wait()  # that thread does no more

    monkeypatch.setattr(os, "_exit", note)
    heart = Heart(Processes(0, 2))
    store.set("eftgan/heart/1", "nodeb left")
    with heart.beating():
        time.sleep(2.5)
        assert not ended.is_set()
        store.set("eftgan/heart/1", "nodeb 7")
        assert ended.wait(60)
    assert "nothing was heard of process 1 on nodeb for 1 seconds; start the same command" in capfd.readouterr().err
    assert heart._has_left.wait(60)
    assert store.get("eftgan/heart/0").endswith(b" left")
