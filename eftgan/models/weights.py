"""Reading files of weights that others wrote."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from eftgan.errors import UserError


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict from a .safetensors file or one that torch.save wrote (also under `state_dict`)."""
    if not path.is_file():
        raise UserError(f"no weights at {path}; give a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the two readers fail in more ways than can be listed
        reason = str(error).partition("\n")[0]
        raise UserError(f"cannot read weights from {path}: {reason}") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path} holds no state dict (a dictionary of names and tensors)")
    return state
