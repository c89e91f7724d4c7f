"""Exported networks in onnxruntime, against torch's merged ones: how far apart, and how fast."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

from benchmarks.harness import Ratio, exact, measure
from benchmarks.networks import adapted, generator, resnet
from eftgan.adapters import merge_task
from eftgan.adapters.by_number import ByNumber
from eftgan.export.program import task_program
from eftgan.gan.export import FinestImage

MERGED = "torch's merged network"
TASKS = 10


def benchmarks() -> Iterator[Ratio]:
    """Goal: the same to 1e-4. Times are told without one."""
    drawing = adapted(generator(), 32, 16, 1).eval()
    z = {"z": torch.randn(16, 100)}
    yield from _compare("StackGAN-v2 64x64, a task a32 b16, batch 16", *2 * [FinestImage(merge_task(drawing, "t1"))], z)
    network, names = adapted(resnet(), 8, 16, TASKS, ("head",)).eval(), [f"t{i}" for i in range(1, TASKS + 1)]
    merged = merge_task(network, names[3])
    for batch in (1, 64):
        images = {"images": torch.randn(batch, 3, 32, 32)}
        yield from _compare(f"ResNet-18, a task a8 b16, batch {batch}", merged, merged, images)
        title = f"ResNet-18, {TASKS} tasks in one graph, one chosen by number, batch {batch}"
        yield from _compare(title, ByNumber(network, names), merged, images, torch.tensor(3))


@torch.no_grad()
def _compare(
    title: str, ours: nn.Module, reference: nn.Module, inputs: dict[str, Tensor], number: Tensor | None = None
) -> list[Ratio]:
    (x,) = inputs.values()
    example = {name: torch.cat([value, value])[:2] for name, value in inputs.items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.onnx"
        task_program(ours, example, "answer", {}, numbered=number is not None).write(file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feed = {name: value.numpy() for name, value in inputs.items()} | (
        {} if number is None else {"task": number.numpy()}
    )
    (found,) = session.run(None, feed)
    apart = float((torch.from_numpy(found) - reference(x)).abs().max())
    return [
        exact(f"{title}: largest difference of onnxruntime", apart, MERGED, 1e-4),
        measure(f"{title}: onnxruntime", lambda: session.run(None, feed), lambda: reference(x), MERGED),
    ]
