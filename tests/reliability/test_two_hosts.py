"""Two hosts train, evaluate and compare together; one that is gone stops the other, and both go on to the same bits."""

import shutil
import time
from pathlib import Path

import pytest
from harness import ROOT, TRAIN, differences, everything
from two_hosts import NAMES, STOPS_WITHIN_S, TwoHosts, two_hosts

pytestmark = pytest.mark.slow

STEPS = "training={batch: 4, steps: 40, save_every_steps: 2, log_every_steps: 2}"
COMMAND = [*TRAIN[:4], STEPS, "evaluation={features: random, samples: 100}", *TRAIN[-1:]]
EVALUATE = ["-m", "eftgan", "evaluate", "run", "--features", "random", "--fid-samples", "150"]


@pytest.fixture(scope="module")
def both():
    with two_hosts() as hosts:
        print("two network namespaces" if hosts.are_apart else "two launchers on loopback")
        yield hosts


@pytest.fixture
def hosts(both):
    yield both
    both.stop()


@pytest.fixture(scope="module")
def undisturbed(both, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("undisturbed")
    first, second = both.run(COMMAND, place)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    said = "2 processes, 1 thread each"
    assert said in first.out
    assert said not in second.out
    assert not list(place.rglob(".common"))
    return place


def begin(hosts: TwoHosts, place: Path) -> None:
    """Start, and wait until both are in the middle of the first task."""
    hosts.start(COMMAND, [place])
    while not list(place.glob("run/state/*")):
        assert all(launcher.poll() is None for launcher in hosts.running.values())
        time.sleep(0.02)


def assert_goes_on_to_the_same_bits(hosts: TwoHosts, place: Path, undisturbed: Path) -> None:
    assert not list(place.glob("run/tasks/02*")), "it was to be disturbed in the middle"
    first, second = hosts.run(COMMAND, place)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "from step" in first.out
    assert differences(place, everything(undisturbed)) == []


@pytest.mark.parametrize("gone", NAMES)
def test_one_host_killed_stops_the_other_and_both_go_on_to_the_same_bits(hosts, undisturbed, tmp_path, gone):
    begin(hosts, tmp_path)
    hosts.kill(gone)
    hosts.running.pop(gone).communicate()
    (left,) = hosts.running
    ended = hosts.end(left, STOPS_WITHIN_S)
    assert ended.code != 0
    assert "the connection to another process is lost" in ended.err, ended.err
    assert "start the same command on every host again" in ended.err
    assert_goes_on_to_the_same_bits(hosts, tmp_path, undisturbed)


def test_hosts_that_lose_each_other_stop_and_go_on_to_the_same_bits(hosts, undisturbed, tmp_path):
    if not hosts.are_apart:
        pytest.skip("there is no cable to pull on loopback")
    begin(hosts, tmp_path)
    hosts.cut()
    try:
        ended = [hosts.end_cut_off(host) for host in NAMES]
    finally:
        hosts.join()
    assert all("nothing was heard of process" in each.err for each in ended), ended
    assert_goes_on_to_the_same_bits(hosts, tmp_path, undisturbed)


def test_two_hosts_evaluate_to_the_lines_of_one_process(hosts, server, undisturbed, tmp_path):

    for name in ("one", "two"):
        shutil.copytree(undisturbed, tmp_path / name)
    first, second = hosts.run(EVALUATE, tmp_path / "two")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "report: " in first.out
    assert second.out == ""
    assert server.run(["eftgan", *EVALUATE[2:]], tmp_path / "one").code == 0
    one, two = ((tmp_path / name / "run" / "scores.jsonl").read_text() for name in ("one", "two"))
    assert two == one
    assert one.count('"n": 150') >= 4


def test_two_hosts_compare_methods(hosts, tmp_path):
    command = ["-m", "eftgan", "compare", str(ROOT / "configs" / "gan" / "shapes.yaml"), *TRAIN[2:-2]]
    command += ["evaluation={features: random, samples: 8}", *TRAIN[-1:], "--methods", "finetune,eft", "--out", "out"]
    first, second = hosts.run(command, tmp_path)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == ""
    runs = [path.parent.parent.name for path in sorted(tmp_path.glob("out/*/tasks/02-checks.safetensors"))]
    assert runs == ["eft-seed0", "finetune-seed0"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert (tmp_path / "out" / "first-seed0" / "tasks" / "01-discs.safetensors").is_file()


def test_hosts_without_a_common_folder_are_told_before_training(hosts, tmp_path):
    folders = [tmp_path / host for host in NAMES]
    for folder in folders:
        folder.mkdir()
    for ended in hosts.run(COMMAND, *folders):
        assert ended.code != 0
        assert "is not the folder that the first process writes to; all hosts need one folder" in ended.err
        assert "exitcode  : 2" in ended.err
        assert "Traceback" not in ended.err.split("ChildFailedError")[0].split("torch/distributed")[0]
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
