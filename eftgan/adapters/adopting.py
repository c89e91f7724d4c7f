"""Modules that take the form of the state that is loaded into them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Adopting(nn.Module):
    """A module whose tensors may be others, or of other shapes, than those of a state it is to load."""

    def adopt(self, state: Mapping[str, Tensor]) -> None:
        """Take the form of a state whose tensors are loaded afterwards; one without any changes nothing."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        own = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        self.adopt(own)
        super()._load_from_state_dict(state_dict, prefix, *args)
