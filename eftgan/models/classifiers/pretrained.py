"""Pretrained classifier weights from a file, whatever number of classes they had."""

from __future__ import annotations

from collections.abc import Mapping

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
