"""Memory replay GANs with replay alignment (Wu et al. 2018, "MeRGAN-RA").

The authors' auxiliary classifier and gradient penalty are left out: all methods here have one adversarial loss,
so that the continual-learning idea alone is compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Doc

from eftgan.adapters import task_modules, task_names, using_task
from eftgan.adapters.bank import Part
from eftgan.config import NonNegative
from eftgan.methods.base import Method
from eftgan.methods.exchange import Batch, Networks, Probe
from eftgan.methods.parameters import train_all_tasks
from eftgan.methods.predecessor import Predecessor
from eftgan.names import GENERATOR


@dataclass
class Mergan(Method):
    """Conditioning by per-task normalisation; the generator must draw earlier tasks as its frozen predecessor does.

    Replay alignment: L_RA = 1/2 sum over earlier tasks c of |G_t(z, c) - G_{t-1}(z, c)|^2 with the same z, summed over
    pixels and stages, a mean over the batch.
    """

    title: ClassVar[str] = "MeRGAN-RA"
    only_for: ClassVar[str | None] = "gan"
    owns: ClassVar[frozenset[Part]] = frozenset({"norms"})

    name: Literal["mergan"] = "mergan"
    strength: Annotated[NonNegative, Doc("of the alignment; the authors' 1e-3 on a batch sum of 64 is 0.064")] = 0.064

    def __post_init__(self) -> None:
        self.previous = Predecessor()  # G_{t-1}

    def trainable(self, networks: Networks, task: str) -> dict[str, list[nn.Parameter]]:
        """The earlier tasks' normalisation goes on training too: the alignment holds it in place."""
        found = super().trainable(networks, task)
        found[GENERATOR] = train_all_tasks(networks[GENERATOR])
        self.previous.to(found[GENERATOR][0].device)
        return found

    def penalty(self, role: str, networks: Networks, batch: Batch) -> Tensor | float:
        if role != GENERATOR or not self.previous:
            return 0.0
        earlier = task_names(self.previous.network)
        return self.strength * sum(self.alignment(networks[role], task, batch.inputs) for task in earlier)

    def alignment(self, generator: nn.Module, task: str, z: Tensor) -> Tensor:
        """One earlier task's term, in eval mode on both sides: just what sampling computes."""
        with torch.no_grad(), using_task(self.previous.network, task) as previous:
            wanted = previous(z)
        for norm in task_modules(generator, task, "norms"):
            norm.eval()
        with using_task(generator, task):
            drawn = generator(z)
        pairs = zip(drawn, wanted, strict=True)
        return 0.5 * sum((new - old).square().flatten(1).sum(1).mean() for new, old in pairs)

    def end_task(self, networks: Networks, task: str, probe: Probe) -> None:
        self.previous.take(networks[GENERATOR])

    def state_dict(self) -> dict[str, Tensor]:
        return self.previous.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor], networks: Networks) -> None:
        self.previous.load(state, networks[GENERATOR])
