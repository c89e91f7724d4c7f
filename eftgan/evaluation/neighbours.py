"""Balls in feature space: around every image one that reaches to its k-th nearest neighbour, and who lies in them."""

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from eftgan.errors import UserError
from eftgan.progress import progress_bar

if TYPE_CHECKING:
    from eftgan.evaluation.statistics import FeatureStatistics

CHUNK = 1024  # rows of distances at once: 40 MB against 5,000 images
NEIGHBOURS = 10  # kept of every image, so that metrics with different k share one search
SAME = 1e-12  # squared distances below this part of the squared norms are rounding: the images are the same

_nearest: "weakref.WeakKeyDictionary[FeatureStatistics, tuple[int, Tensor]]" = weakref.WeakKeyDictionary()


def squared_radii(statistics: "FeatureStatistics", k: int) -> Tensor:
    """The squared distance of every kept image to its k-th nearest among the others, (N,), float64."""
    n = len(statistics.features)
    if n <= k:
        raise UserError(f"neighbours of k = {k} need at least {k + 1} images on each side; one side has {n}")
    known_n, nearest = _nearest.get(statistics, (0, torch.empty(0, 0)))
    if known_n != n or nearest.shape[1] <= k:
        nearest = _search(statistics.features.double(), min(n, max(k, NEIGHBOURS) + 1))
        _nearest[statistics] = (n, nearest)
    return nearest[:, k]  # place 0 is the image itself


def members(points: Tensor, centres: Tensor, radii: Tensor, *, closed: bool) -> Iterator[Tensor]:
    """Which points lie in which balls: boolean blocks (some points, all centres), in the order of the points.

    closed: whether the rim belongs to a ball.
    """
    if len(points) == 0:
        raise UserError("neighbours need the features of single images, and of one side none were kept")
    centres = centres.double()
    compare = torch.le if closed else torch.lt
    for chunk in _chunks(points.double(), "who lies in which ball"):
        yield compare(squared_distances(chunk, centres), radii)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """(N, dims) and (M, dims) to (N, M), exactly 0 for the same features."""
    norms = a.square().sum(dim=1)[:, None] + b.square().sum(dim=1)
    found = norms - 2 * (a @ b.T)
    return found.masked_fill_(found < SAME * norms, 0.0)


def _search(rows: Tensor, count: int) -> Tensor:
    """The squared distances of every row to the `count` nearest rows, itself among them, ascending."""
    blocks = (squared_distances(chunk, rows) for chunk in _chunks(rows, "nearest neighbours"))
    return torch.cat([block.topk(count, largest=False).values for block in blocks])


def _chunks(rows: Tensor, title: str) -> Iterator[Tensor]:
    """Some rows at a time, with a progress bar where it takes longer than a moment."""
    with progress_bar(total=len(rows), desc=title, unit="img", leave=False, delay=2) as bar:
        for chunk in rows.split(CHUNK):
            yield chunk
            bar.update(len(chunk))
