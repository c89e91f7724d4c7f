"""Two gloo processes train a step of a second task under DDP: a program, given a file to meet at."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from adapter_tools import images, output_of, small_cnn, train
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from eftgan.adapters import AdapterConfig, add_task, fingerprint, insert_adapters, task_state, train_only
from eftgan.errors import UserError
from eftgan.tensors import tensors_digest


def refuses(call) -> bool:
    try:
        call()
    except UserError as error:
        return "DistributedDataParallel" in str(error)
    return False


def work(rank: int, meeting_point: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=2, timeout=timedelta(minutes=4)
    )
    torch.manual_seed(0)
    network = small_cnn()
    insert_adapters(network, AdapterConfig(4, 4, heads=("7",)))
    add_task(network, "cats")
    add_task(network, "birds")
    train_only(network, "birds")
    cats, base = output_of(network, "cats", images()), fingerprint(network)
    before = tensors_digest(task_state(network, "birds"))

    wrapped = DistributedDataParallel(network)
    train(wrapped, "birds", images(seed=rank), steps=1)

    weights = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(gathered, weights)
    assert torch.equal(*gathered)
    assert tensors_digest(task_state(wrapped, "birds")) != before
    assert torch.equal(output_of(wrapped, "cats", images()), cats)
    assert fingerprint(wrapped) == base
    assert refuses(lambda: add_task(wrapped, "dogs"))
    assert refuses(lambda: train_only(wrapped, "cats"))
    assert refuses(lambda: insert_adapters(DistributedDataParallel(small_cnn()), AdapterConfig()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    # Forked before any thread is started, so that torch is imported once.
    multiprocessing.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")
