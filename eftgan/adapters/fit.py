"""A grown network's state written for a network with other transforms that computes the same."""

from collections.abc import Mapping

from torch import Tensor, nn

from eftgan.adapters.bank import named_banks, unwrap
from eftgan.adapters.transforms import widened


def with_wider_groups(network: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """EFT's transforms may have wider groups in the network than in the state."""
    return widened(state, unwrap(network).state_dict())


def with_neutral_transforms(network: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state without its transforms, which are neutral, and with those of the network, which has its tasks already.

    A layer that has a transform in one of the two alone has another name there, as its bank holds it as `layer`. What
    the state lacks is left out.
    """
    banks = {name: bank for name, bank in named_banks(network) if bank.part == "transforms"}
    own = unwrap(network).state_dict()
    neutral = tuple(f"{name}.tasks." for name in banks)
    fitted = {key: tensor for key, tensor in own.items() if neutral and key.startswith(neutral)}
    for key in own.keys() - fitted.keys():
        layer, _, tensor = key.rpartition(".")
        bank = layer.removesuffix(".layer")
        for known in (key, f"{bank}.{tensor}" if bank in banks else f"{layer}.layer.{tensor}"):
            if known in state:
                fitted[key] = state[known]
                break
    return fitted
