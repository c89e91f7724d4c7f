"""torchvision's data sets, where the user has their files: never downloaded, always as plain uint8 tensors."""

import os
from pathlib import Path

import numpy as np
import torch

from eftgan.errors import UserError

SUPPORTED = ("CIFAR10", "CIFAR100", "SVHN", "MNIST", "FashionMNIST")


def load_split(name: str, root: str | os.PathLike, *, train: bool) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """uint8 (N, 3, H, W), int64 (N,) and the class names of one split."""
    from torchvision import datasets  # slow to import and needed here only

    if name not in SUPPORTED:
        raise UserError(f"torchvision set {name!r} is not supported; choose one of {', '.join(SUPPORTED)}")
    chosen = {"split": "train" if train else "test"} if name == "SVHN" else {"train": train}
    try:
        data = getattr(datasets, name)(str(Path(root).expanduser()), download=False, **chosen)
    except (RuntimeError, OSError) as error:  # files missing or not those that torchvision knows
        raise UserError(
            f"{root} does not hold torchvision's whole {name} files ({error}); "
            f"fetch them, or prepare a folder tree with: python -m data_prep folder"
        ) from error
    pixels = np.asarray(data.data)
    if pixels.ndim == 3:  # grey: (N, H, W)
        pixels = np.repeat(pixels[:, None], 3, axis=1)
    elif pixels.shape[1] != 3:  # (N, H, W, 3)
        pixels = pixels.transpose(0, 3, 1, 2)
    targets = torch.as_tensor(np.asarray(getattr(data, "targets", getattr(data, "labels", None)))).long()
    classes = list(getattr(data, "classes", None) or map(str, range(int(targets.max()) + 1)))
    return torch.from_numpy(np.ascontiguousarray(pixels)), targets, classes
