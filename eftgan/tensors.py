"""Tensors on disk (safetensors, never pickle) and their digest."""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from eftgan.errors import UserError
from eftgan.files import write_bytes


def tensors_digest(state: Mapping[str, Tensor]) -> str:
    """sha256 over names, types, shapes and bytes, independent of device and order."""
    digest = hashlib.sha256()
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"{key}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(path: str | os.PathLike, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata as one file, atomically. Tensors that share memory are written out each."""
    own = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}
    write_bytes(path, _with_sorted_header(save(own, dict(metadata))))


def _with_sorted_header(content: bytes) -> bytes:
    """The same file with its header in one order: safetensors keeps metadata in a hash map of random order.

    Layout: 8 bytes length, the JSON header padded to a multiple of 8, then the data that offsets refer to.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]


def tensor_names(path: str | os.PathLike) -> list[str]:
    """Names of a safetensors file's tensors, which are not read."""
    try:
        with safe_open(Path(path), framework="pt") as handle:
            return list(handle.keys())
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from error


def read_tensors(path: str | os.PathLike) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as handle:
            return {key: handle.get_tensor(key) for key in handle.keys()}, handle.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from error


def pack_bits(mask: Tensor) -> Tensor:
    """A bool tensor as bytes, eight entries each, the first in the lowest bit."""
    flat = mask.detach().reshape(-1).to(torch.uint8)
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % 8)]).reshape(-1, 8)
    return (padded << torch.arange(8, dtype=torch.uint8, device=flat.device)).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, shape: Sequence[int]) -> Tensor:
    """What `pack_bits` was given."""
    count = math.prod(shape)
    if packed.dtype != torch.uint8 or packed.numel() != -(-count // 8):
        raise UserError(f"{packed.numel()} values of {packed.dtype} are not the packed bits of {count} entries")
    bits = (packed.reshape(-1, 1) >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    return bits.reshape(-1)[:count].reshape(tuple(shape)).bool()
