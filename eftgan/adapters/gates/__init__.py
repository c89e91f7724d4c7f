"""What a task multiplies the normalised output of a layer by: one kind a file, one line here."""

from eftgan.adapters.gates.base import Gate
from eftgan.adapters.gates.channel import ChannelGate

GATES: dict[str, type[Gate]] = {
    "channel": ChannelGate,
}

__all__ = ["GATES", "ChannelGate", "Gate"]
