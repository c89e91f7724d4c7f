"""Jobs from a torchvision data set that lies on the disk already."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from eftgan.data.conversion import Job
from eftgan.data.torchvision_sets import load_split


def splits_from_torchvision(name: str, root: Path) -> dict[str, Job]:
    """The jobs `train` and `test` of one set, e.g. CIFAR10."""
    jobs = {}
    for split in ("train", "test"):
        images, targets, classes = load_split(name, root, train=split == "train")
        items = [((f"{name} {split} {i}", i), target) for i, target in enumerate(targets.tolist())]
        jobs[split] = Job(items, LoadFromArray(images.numpy()), classes)
    return jobs


@dataclass(frozen=True)
class LoadFromArray:
    """One image of uint8 (N, 3, H, W)."""

    images: np.ndarray

    def __call__(self, item: tuple[str, int]) -> Image.Image:
        return Image.fromarray(np.ascontiguousarray(self.images[item[1]].transpose(1, 2, 0)))
