"""Public StackGAN-v2 weights, renamed for our networks. The layers are the same; only the names differ.

ours                            reference
stem                            h_net1.fc
upsample.{i}                    h_net1.upsample{i+1}
refine.{k}.joint                h_net{k+2}.jointConv
refine.{k}.residual.{r}.block   h_net{k+2}.residual.{r}.block
refine.{k}.upsample             h_net{k+2}.upsample
heads.{k}                       img_net{k+1}.img

down.0.0                        img_code_s16.0
down.{i}.0, down.{i}.1          img_code_s16.{3i-1}, img_code_s16.{3i}      for i = 1, 2, 3
down.4, down.5                  img_code_s32, img_code_s64
narrow.{j}                      img_code_s32_1 (128 px), img_code_s64_{j+1} (256 px)
logits                          logits.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from eftgan.errors import UserError
from eftgan.models.gans.stackgan import Discriminator, Generator


def reference_state(state: Mapping[str, Tensor], network: Generator | Discriminator) -> dict[str, Tensor]:
    """The reference's state dict under the network's own names, ready for a strict `load_state_dict`.

    A `module.` prefix (DataParallel) is dropped. Weights saved before PyTorch 0.4 lack BatchNorm's batch
    counter; it starts at 0. A missing, left-over or wrongly shaped tensor is refused by name.
    """
    theirs = {key.removeprefix("module."): value for key, value in state.items()}
    own = network.state_dict()
    names = {key: _reference_name(key, network) for key in own}
    counters = {name: torch.tensor(0) for name in names.values() if name.endswith("num_batches_tracked")}
    theirs = counters | theirs
    _refuse("lack", names.values() - theirs.keys())
    _refuse("hold more than this network (stages, size) has:", theirs.keys() - names.values())
    _refuse(
        "have another shape (ngf, ndf, z_dim) at",
        [name for key, name in names.items() if theirs[name].shape != own[key].shape],
    )
    return {key: theirs[name] for key, name in names.items()}


def _reference_name(key: str, network: Generator | Discriminator) -> str:
    pairs = _generator_prefixes(network) if isinstance(network, Generator) else _discriminator_prefixes(network)
    for ours, theirs in pairs:
        if key.startswith(f"{ours}."):
            return theirs + key.removeprefix(ours)
    raise KeyError(key)


def _generator_prefixes(network: Generator) -> Iterable[tuple[str, str]]:
    yield "stem", "h_net1.fc"
    for i in range(len(network.upsample)):
        yield f"upsample.{i}", f"h_net1.upsample{i + 1}"
    for k in range(len(network.refine)):
        yield f"refine.{k}.joint", f"h_net{k + 2}.jointConv"
        yield f"refine.{k}.residual", f"h_net{k + 2}.residual"
        yield f"refine.{k}.upsample", f"h_net{k + 2}.upsample"
    for k in range(len(network.heads)):
        yield f"heads.{k}", f"img_net{k + 1}.img"


def _discriminator_prefixes(network: Discriminator) -> Iterable[tuple[str, str]]:
    halvings = len(network.down)
    yield "down.0.0", "img_code_s16.0"
    for i in range(1, min(halvings, 4)):
        yield f"down.{i}.0", f"img_code_s16.{3 * i - 1}"
        yield f"down.{i}.1", f"img_code_s16.{3 * i}"
    for i in range(4, halvings):
        yield f"down.{i}", f"img_code_s{2 ** (i + 1)}"
    for j in range(len(network.narrow)):
        yield f"narrow.{j}", f"img_code_s{2**halvings}_{j + 1}"
    yield "logits", "logits.0"


def _refuse(what: str, names: Iterable[str]) -> None:
    found = sorted(names)
    if found:
        listed = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise UserError(f"these reference weights {what} {listed}")
