"""What a task multiplies the normalised output of a layer by: one kind a file, one line here."""

from eftgan.adapters.gates.base import Gate
from eftgan.adapters.gates.channel import ChannelGate
from eftgan.adapters.gates.fixed import FixedGate, SliceGate, UnitGate

GATES: dict[str, type[Gate]] = {
    "channel": ChannelGate,
    "unit": UnitGate,
    "slice": SliceGate,
}

__all__ = ["GATES", "ChannelGate", "FixedGate", "Gate", "SliceGate", "UnitGate"]
