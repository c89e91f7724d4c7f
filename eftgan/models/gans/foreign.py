"""Weights that others have published, under names of their own."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from eftgan.errors import UserError

COUNTER = "num_batches_tracked"  # of BatchNorm: weights from before PyTorch 0.4 lack it


def same_layers(state: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """The state under the network's own names: the same tensors in the same order, whatever they are called.

    The first that differs in shape or kind is refused by name, as is one too many or too few.
    """
    own = {key: tensor for key, tensor in network.state_dict().items() if not key.endswith(COUNTER)}
    theirs = {key: tensor for key, tensor in state.items() if not key.endswith(COUNTER)}
    if own.keys() == theirs.keys():
        theirs = {key: theirs[key] for key in own}
    for (name, tensor), (key, given) in zip(own.items(), theirs.items(), strict=False):
        if tensor.shape != given.shape or name.rpartition(".")[2] != key.rpartition(".")[2]:
            raise UserError(
                f"its {key} {tuple(given.shape)} stands where {name} {tuple(tensor.shape)} is expected: other layers "
                "or widths (ngf, ndf, z_dim, size)"
            )
    if len(own) != len(theirs):
        raise UserError(f"it has {len(theirs)} tensors where {len(own)} are expected: more or fewer layers (size)")
    counters = {key: tensor for key, tensor in network.state_dict().items() if key.endswith(COUNTER)}
    return counters | dict(zip(own, theirs.values(), strict=True))
