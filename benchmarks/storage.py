"""Reading images, measuring distances, and the size of a task's file."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from pytorch_fid.fid_score import calculate_frechet_distance
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness import Ratio, exact, measure
from benchmarks.networks import adapted, discriminator, generator
from eftgan.adapters import task_state
from eftgan.data.lmdb import LmdbImages, write_lmdb
from eftgan.evaluation.metrics.fid import frechet_distance
from eftgan.evaluation.statistics import FeatureStatistics
from eftgan.tensors import write_tensors


def benchmarks() -> Iterator[Ratio]:
    """Goals: 0.18, 0.06, 0.02 and 0.25."""
    with tempfile.TemporaryDirectory() as folder:
        yield _loading(Path(folder))
        yield _bytes(Path(folder))
    yield from (_distance(n, goal) for n, goal in ((500, 0.02), (5000, 0.25)))


def _loading(folder: Path, count: int = 2000) -> Ratio:
    """64-pixel photographs (here: smooth noise) from an LMDB, and from JPEG files in a folder."""
    torch.manual_seed(0)
    noise = torch.nn.functional.interpolate(torch.rand(count, 3, 8, 8), 64, mode="bilinear").mul(255).byte().numpy()
    (folder / "jpegs" / "all").mkdir(parents=True)
    for index, image in enumerate(noise):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / "jpegs" / "all" / f"{index:05d}.jpg", quality=90)
    write_lmdb(folder / "images.lmdb", ((np.ascontiguousarray(image), None) for image in noise), size=64)
    to_tensor = torchvision.transforms.PILToTensor()
    tree = torchvision.datasets.ImageFolder(folder / "jpegs", to_tensor)

    def epochs(images: Dataset) -> DataLoader:
        return DataLoader(images, 64, shuffle=True, num_workers=2, persistent_workers=True)

    def read(loader: DataLoader) -> None:
        for _ in loader:
            pass

    ours, other = epochs(LmdbImages(folder / "images.lmdb")), epochs(tree)
    what = "torchvision ImageFolder of the same JPEGs"
    return measure("64 px images from LMDB, 2 workers", lambda: read(ours), lambda: read(other), what, 0.18, rounds=5)


def _distance(count: int, goal: float) -> Ratio:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(2048, 2048, generator=generator) / 45
    sides = [torch.randn(count, 2048, generator=generator) @ mixing + shift for shift in (0.0, 0.1)]
    ours = [FeatureStatistics.from_features(side) for side in sides]
    moments = [(side.double().mean(0).numpy(), np.cov(side.double().numpy(), rowvar=False)) for side in sides]
    return measure(
        f"Frechet distance, N = {count}", lambda: frechet_distance(*ours),
        lambda: calculate_frechet_distance(*moments[0], *moments[1]), "pytorch-fid's", goal, rounds=3,
    )  # fmt: skip


def _bytes(folder: Path) -> Ratio:
    """Files as they are written: one task of generator and discriminator, and both networks whole."""
    networks = {
        "generator": adapted(generator(), 32, 16, 2),
        "discriminator": adapted(discriminator(), 32, 16, 2, ("logits",)),
    }
    whole = {"generator": generator(), "discriminator": discriminator()}
    files = {"task": folder / "task.safetensors", "whole": folder / "whole.safetensors"}
    write_tensors(files["task"], _joined({role: task_state(network, "t2") for role, network in networks.items()}), {})
    write_tensors(files["whole"], _joined({role: network.state_dict() for role, network in whole.items()}), {})
    sizes = {name: path.stat().st_size for name, path in files.items()}
    ratio = sizes["task"] / sizes["whole"]
    return exact("bytes of a task's file, StackGAN-v2 64x64 a32 b16", ratio, "the whole model's", 0.06)


def _joined(states: dict[str, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {f"{role}/{key}": tensor for role, state in states.items() for key, tensor in state.items()}
