"""Reading files of weights that others wrote."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from eftgan.errors import UserError


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict from a .safetensors file or one that torch.save wrote (also where it is the only one inside)."""
    if not path.is_file():
        raise UserError(f"no weights at {path}; give a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the two readers fail in more ways than can be listed
        reason = str(error).partition("\n")[0]
        raise UserError(f"cannot read weights from {path}: {reason}") from error
    if _is_state_dict(state):
        return state
    inside = {key: value for key, value in state.items() if _is_state_dict(value)} if isinstance(state, dict) else {}
    if "state_dict" in inside:
        return inside["state_dict"]
    if len(inside) > 1:
        raise UserError(f"{path} holds several state dicts ({', '.join(map(str, inside))}); save the one to use alone")
    if not inside:
        raise UserError(f"{path} holds no state dict (a dictionary of names and tensors)")
    return next(iter(inside.values()))


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and len(value) > 0 and all(isinstance(each, Tensor) for each in value.values())
