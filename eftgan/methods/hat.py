"""Hard attention to the task (Serra et al., ICML 2018)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_names
from eftgan.adapters.gates import UnitGate
from eftgan.config import NonNegative, Positive
from eftgan.methods.exchange import Batch, Group, Moment, Networks, Probe
from eftgan.methods.gated_units import GatedUnits, gates_of, units_through
from eftgan.names import CLASSIFIER

LIMIT = 6.0  # of an embedding, as in the authors' code


@dataclass
class Hat(GatedUnits):
    """A gate per unit is learned with each task; weights between two units that tasks use are theirs.

    Gates are a = sigmoid(s e) (eq. 1), s rising in every epoch from 1/smax to smax (eq. 3). The entry from unit j to
    unit i is held where earlier tasks use both (eq. 2, with gates of 0 and 1). A penalty makes tasks use few new units
    (eqs. 4 and 5). Unlike the authors' gates these are made hard at the end of a task, so that it stays exactly so.
    """

    title: ClassVar[str] = "HAT"
    gate: ClassVar[str] = "unit"

    name: Literal["hat"] = "hat"
    strength: Annotated[NonNegative, Doc("of the penalty on units that no earlier task uses: c of the paper")] = 0.75
    smax: Annotated[Positive, Doc("largest steepness of the gates")] = 400.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._gates: dict[str, UnitGate] = {}  # of the task in training
        self._earlier: dict[str, Tensor] = {}  # by gate, the units that earlier tasks use

    @property
    def own_first_task(self) -> dict[str, str]:
        return {**super().own_first_task, "strength": str(self.strength), "smax": str(self.smax)}

    def owned(self, network: nn.Module, task: str) -> dict[str, Tensor]:
        return self.entries(network, units_through(network, task))

    def grow(self, networks: Networks, task: str, *, init: str | None = None, head_size: int | None = None) -> None:
        super().grow(networks, task, init=init, head_size=head_size)
        for gate in _unit_gates(networks[CLASSIFIER], task).values():
            gate.reset_parameters()
        self.draw_free_entries(networks, task)

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        network = networks[CLASSIFIER]
        names = task_names(network)
        self._gates = _unit_gates(network, task)
        before = names[names.index(task) - 1] if names[0] != task else None
        self._earlier = {name: torch.zeros_like(gate.opened) for name, gate in self._gates.items()} | (
            units_through(network, before) if before else {}
        )
        return super().trainable(networks, task)

    def groups(self, role: str, parameters: list[nn.Parameter]) -> list[Group]:
        """Embeddings have neither momentum, which their steep gradients would saturate, nor decay."""
        embeddings = {gate.e for gate in self._gates.values() if gate.e is not None}
        others = [parameter for parameter in parameters if parameter not in embeddings]
        own = [parameter for parameter in parameters if parameter in embeddings]
        return [Group(others), Group(own, decay=0.0, momentum=0.0)]

    def begin_step(self, role: str, networks: Networks, moment: Moment) -> None:
        assert moment.epoch is not None  # a classifier's trainer counts them
        steepness = annealed(moment, self.smax)
        for gate in self._gates.values():
            gate.scale, gate.scale_max = steepness, self.smax

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        factors = torch.cat([gate.factors() for gate in self._gates.values()])
        free = ~torch.cat([self._earlier[name] for name in self._gates])
        return self.strength * new_units(factors, free)

    @torch.no_grad()
    def after_step(self, role: str, networks: Networks) -> None:
        for gate in self._gates.values():
            assert gate.e is not None  # until the task ends
            gate.e.clamp_(-LIMIT, LIMIT)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        for gate in _unit_gates(networks[CLASSIFIER], task).values():
            gate.finish()
        super().end_task(networks, task, probe)

    def figures(self) -> dict[str, float]:
        """The share of units that this task or an earlier one uses, as things stand."""
        used = [gate.opened | self._earlier[name] for name, gate in self._gates.items()]
        return {"used-units": float(torch.cat(used).float().mean())} if used else {}


def _unit_gates(network: nn.Module, task: str) -> dict[str, UnitGate]:
    return {name: gate for name, gate in gates_of(network, task).items() if isinstance(gate, UnitGate)}


def annealed(moment: Moment, smax: float) -> float:
    """s of eq. 3: from 1/smax in an epoch's first batch to smax in its last, in equal steps."""
    if not moment.step or not moment.epoch:
        return 1 / smax
    batches = moment.step / moment.epoch  # of an epoch
    done = (moment.epoch + 1e-9) % 1 * batches
    return 1 / smax + (smax - 1 / smax) * min(done / max(batches - 1, 1e-9), 1.0)


def new_units(factors: Tensor, free: Tensor) -> Tensor:
    """R of eq. 5: the mean factor of the units that no earlier task uses; 0 where there is none."""
    return (factors * free).sum() / free.sum().clamp(min=1)
