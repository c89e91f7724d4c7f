"""A grown network's state written for a network with other transforms that computes the same."""

from collections.abc import Collection, Iterator, Mapping

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
        known = next((name for name in (key, *_other_names(key, banks)) if name in state), None)
        if known is not None:
            fitted[key] = state[known]
    return fitted


def _other_names(key: str, banks: Collection[str]) -> Iterator[str]:
    """What a tensor may be called where its layer has no bank, or has one while it has none here.

    A tensor may lie deep in its layer, as those of a spectral norm do; the nearest module around it comes first.
    """
    parts = key.split(".")
    for place in range(len(parts) - 1, 0, -1):
        layer, rest = ".".join(parts[:place]), ".".join(parts[place:])
        bank = layer.removesuffix(".layer")
        yield f"{bank}.{rest}" if bank != layer and bank in banks else f"{layer}.layer.{rest}"
