"""What several tasks' own parts have in common, found by clusters: the hierarchical form of APD (Yoon et al. 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from eftgan.adapters import named_banks, registry_of
from eftgan.adapters.transforms import Decomposed

ROUNDS = 100  # of k-means, at most


def k_means(points: Tensor, groups: int) -> Tensor:
    """The group (T,) of each point (T, n). Centres start at the first point and those farthest from all centres yet."""
    centres = points[:1]
    while len(centres) < min(groups, len(points)):
        farthest = torch.cdist(points, centres).amin(1).argmax()
        centres = torch.cat([centres, points[farthest][None]])
    labels = torch.cdist(points, centres).argmin(1)
    for _ in range(ROUNDS):
        means = [points[labels == g].mean(0) if bool((labels == g).any()) else c for g, c in enumerate(centres)]
        before, centres = labels, torch.stack(means)
        labels = torch.cdist(points, centres).argmin(1)
        if torch.equal(before, labels):
            break
    return labels


def divide(points: Tensor, spread: float) -> tuple[Tensor, Tensor]:
    """What points (M, n) have in common, (n,), and the rest of each: where they lie close together, their middle."""
    most, least = points.amax(0), points.amin(0)
    close = most - least <= spread
    return torch.where(close, (most + least) / 2, 0.0), torch.where(close, 0.0, points)


@torch.no_grad()
def consolidate(owners: Sequence[Decomposed], groups: int, spread: float) -> None:
    """Divide the own parts of all tasks at one layer into those of groups and those of tasks."""
    for own in owners:
        own.take_back_common()
    points = torch.stack([own.tau.flatten() for own in owners])
    labels = k_means(points, groups)
    for label in labels.unique().tolist():
        members = [own for own, its in zip(owners, labels.tolist(), strict=True) if its == label]
        if len(members) < 2:
            continue
        common, rest = divide(points[labels == label], spread)
        for place, (own, left) in enumerate(zip(members, rest, strict=True)):
            own.give_common(common.view_as(own.tau), left.view_as(own.tau), first=place == 0)


def consolidate_network(network: nn.Module, groups: int, spread: float) -> None:
    """The same for every layer, over all tasks of a network."""
    rows = registry_of(network).rows.values()
    for _, bank in named_banks(network):
        if bank.part == "transforms":
            owners = [bank.task(row) for row in rows]
            consolidate([own for own in owners if isinstance(own, Decomposed)], groups, spread)
