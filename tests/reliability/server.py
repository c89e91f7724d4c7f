"""A process that has everything imported and forks a child per command: a second each instead of ten.

Reads one JSON job a line from stdin and answers with the exit code, of several children with the first that is not 0;
a child that a signal ended gives minus its number. Several `processes` train one run together, several `workers` know
nothing of each other.
"""

import gc
import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import faults
import torch

import data_prep.__main__
import eftgan.commands
from eftgan.kinds import KINDS, load_kind


def serve() -> None:
    torch.set_num_threads(1)
    for name in KINDS:
        load_kind(name)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first optimizer imports much more of torch
    gc.collect()
    gc.freeze()  # as the tests do
    for line in sys.stdin:
        job = json.loads(line)
        children = []
        for rank in range(max(job["processes"], job["workers"])):
            child = os.fork()
            if child == 0:
                os._exit(run(job, rank))
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(next((code for code in codes if code), 0), flush=True)


def run(job: dict, rank: int) -> int:
    """The exit code of a program run in this process as its command line would run it."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(job["cwd"])
    os.environ["EFTGAN_CACHE"] = "cache"
    if job["processes"] > 1:  # what torchrun tells its processes
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["processes"], "LOCAL_WORLD_SIZE": job["processes"]}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": job["port"]}
        os.environ.update({name: str(value) for name, value in own.items()})
    sys.argv = job["command"]
    time.monotonic = lambda: 0.0  # training takes no time, so that files that tell its seconds can be compared
    if job["workers"] == 1 or rank == 0:  # of several workers, the first one is disturbed
        faults.install(faults.Plan(**job["plan"]))
    try:
        if sys.argv[0] == "eftgan":
            eftgan.commands.main()
        elif sys.argv[0] == "data_prep":
            data_prep.__main__.main()
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve()
