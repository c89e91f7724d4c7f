"""Which task does an image belong to? Every task answers, and the one that a rule finds the surest is believed."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from eftgan.adapters import Together, inference_network, registry_of
from eftgan.adapters.bank import tasks_share_batches
from eftgan.adapters.insert import replace_modules
from eftgan.adapters.merge import fast_layout
from eftgan.adapters.modes import evaluating
from eftgan.data.labelled import LabelledImages
from eftgan.data.pixels import Pixels
from eftgan.evaluation.maps import last_maps
from eftgan.evaluation.rules import Said
from eftgan.methods.heads import head_bank_name, head_of
from eftgan.methods.rotation import averaged_logits, turned

EVALUATION_BATCH = 256


def image_batches(images: LabelledImages, pixels: Pixels, device: torch.device | str = "cpu") -> Iterator[Tensor]:
    """Images as networks want them, piece by piece, without augmentation."""
    for chunk in torch.arange(len(images)).split(EVALUATION_BATCH):
        yield pixels(images.fetch(chunk)[0].to(device))


def shares_features(model: nn.Module, tasks: list[str]) -> bool:
    """Whether the tasks differ in nothing but their heads."""
    return len({_trunk(model, task) for task in tasks}) == 1


def _trunk(model: nn.Module, task: str) -> tuple[str, str]:
    row = registry_of(model).row(task)
    return row["transforms"], row["norms"]


def _trunk_of(model: nn.Module, task: str) -> nn.Module:
    """A network of the task's own, up to what its head reads."""
    trunk = inference_network(model, task)
    replace_modules(trunk, {trunk.get_submodule(head_bank_name(model)): nn.Identity()})
    return trunk


@torch.no_grad()
def said_by_task(
    model: nn.Module, tasks: list[str], batches: Callable[[], Iterable[Tensor]], turns: int = 1
) -> list[Said]:
    """What every task says of the same images: logits (N, classes of the task), features (N, F) of its head's input.

    `batches` is called once per trunk. Each task answers as a network of its own, merged where that can be, so its
    logits are the same bits whoever is asked beside it. Tasks that share all but their heads share one trunk.
    `turns`: in how many rotations the heads know each class; the logits are averaged over them.
    """
    if not tasks_share_batches(model):  # a head may read more than the trunk's output
        alone = (fast_layout(inference_network(model, task)) for task in tasks)  # one layout, the same bits
        return [Said(_averaged(network, batches, turns), None) for network in alone]
    features: dict[tuple[str, str], list[Tensor]] = {}
    for task in tasks:
        if _trunk(model, task) not in features:
            trunk = _trunk_of(model, task)
            seen = [[trunk(turned(x, turn)) for turn in range(turns)] for x in batches()]
            features[_trunk(model, task)] = [torch.cat(each) for each in zip(*seen, strict=True)]
    with evaluating(model):
        return [
            Said(averaged_logits([head_of(model, task)(each) for each in features[_trunk(model, task)]]), upright)
            for task, (upright, *_) in ((task, features[_trunk(model, task)]) for task in tasks)
        ]


def _averaged(network: nn.Module, batches: Callable[[], Iterable[Tensor]], turns: int) -> Tensor:
    """The logits of a network, averaged over the turns of each image."""
    return torch.cat([averaged_logits([network(turned(x, turn)) for turn in range(turns)]) for x in batches()])


def logits_by_task(model: nn.Module, tasks: list[str], batches: Callable[[], Iterable[Tensor]]) -> list[Tensor]:
    """The logits alone, of heads that know each class as it stands."""
    return [said.logits for said in said_by_task(model, tasks, batches)]


@torch.no_grad()
def logits_together(model: nn.Module, tasks: list[str], x: Tensor, turns: int = 1) -> list[Tensor]:
    """The same in one pass, up to rounding: the quick way to ask for a few images."""
    if shares_features(model, tasks) or not tasks_share_batches(model):
        return [said.logits for said in said_by_task(model, tasks, lambda: [x], turns)]
    together = Together(model, tasks)
    return [averaged_logits(list(each)) for each in zip(*(together(turned(x, r)) for r in range(turns)), strict=True)]


@torch.no_grad()
def common_features(model: nn.Module, first: str, batches: Callable[[], Iterable[Tensor]]) -> Tensor:
    """Images as the first task's network sees them (N, G): maps of every size, averaged over pixels, and its features.

    Later tasks leave that network as it is, so that it is one space for the images of all of them.
    """
    trunk = _trunk_of(model, first)
    with last_maps(trunk) as seen:
        return torch.cat([seen.before(trunk(x)) for x in batches()])


def map_statistics(model: nn.Module, first: str, batches: Callable[[], Iterable[Tensor]]) -> Tensor:
    """Images (N, M) by their maps in the first task's network: the common features, and the maps' deviations.

    Averaged over the image and its mirror image.
    """
    return _mirrored_statistics(model, first, batches, correlations=False)


def map_textures(model: nn.Module, first: str, batches: Callable[[], Iterable[Tensor]]) -> Tensor:
    """The same, and how the channels of the largest map go together."""
    return _mirrored_statistics(model, first, batches, correlations=True)


@torch.no_grad()
def _mirrored_statistics(
    model: nn.Module, first: str, batches: Callable[[], Iterable[Tensor]], *, correlations: bool
) -> Tensor:
    trunk = _trunk_of(model, first)
    with last_maps(trunk, deviations=True, correlations=correlations) as seen:
        both = [[seen.statistics(trunk(view)) for view in (x, x.flip(3))] for x in batches()]
    return torch.cat([(upright + mirrored) / 2 for upright, mirrored in both])


SPACES: dict[str, Callable[[nn.Module, str, Callable[[], Iterable[Tensor]]], Tensor]] = {
    "common": common_features,
    "statistics": map_statistics,
    "textures": map_textures,
}  # of the first task's network, which stays as it is; by the names that rules ask for them by


def completed(said: Sequence[Said], spaces: Mapping[str, Tensor], kept: Sequence[Mapping[str, Tensor]]) -> list[Said]:
    """The same answers beside the images in the spaces of all tasks, and what each kept of its training images."""
    return [dataclasses.replace(each, **spaces, kept=own) for each, own in zip(said, kept, strict=True)]


def infer_classes(logits: list[Tensor], tasks: Tensor) -> Tensor:
    """Index (B,) of the class within the given task of each image."""
    answers = torch.stack([each.argmax(1) for each in logits])  # (tasks, B)
    return answers.gather(0, tasks[None]).squeeze(0)
