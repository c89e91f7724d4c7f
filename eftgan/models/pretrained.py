"""Pretrained classifier weights from a file, whatever number of classes they had."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from eftgan.errors import UserError


def head_name(model: nn.Module) -> str:
    """Dotted path of the model's last linear layer, its output."""
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise UserError(f"{type(model).__name__} has no linear output layer, so it cannot get a head per task")
    return linears[-1]


def load_pretrained(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy the weights in. A head for another number of classes is left as built; all else must match."""
    state = {key.removeprefix("module."): value for key, value in state.items()}
    own = model.state_dict()
    head = head_name(model) + "."
    for key in [key for key in own if key.startswith(head)]:
        if key not in state or state[key].shape != own[key].shape:
            state[key] = own[key]
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"{source} does not fit {type(model).__name__}: {error}") from error


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
