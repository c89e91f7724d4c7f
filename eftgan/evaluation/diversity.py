"""Diversity of images by LPIPS, without going through the pairs.

LPIPS is the squared Euclidean distance between long feature vectors (see `Lpips.features`), and the mean squared
distance over all pairs of N vectors is twice their variance: so N images cost N passes, not N^2 / 2 comparisons.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from eftgan.errors import UserError
from eftgan.evaluation.lpips import load_lpips
from eftgan.progress import progress_bar

SMOOTHING = 1e-5  # added to every share, as the authors of B-LPIPS do


class Spread:
    """Twice the variance of vectors that come one batch after another: the mean squared distance over their pairs."""

    def __init__(self, origin: Tensor) -> None:
        """origin: any vector near the others, from which they are measured, so that nothing cancels."""
        self.n, self._origin = 0, origin
        self._sum = torch.zeros_like(origin, dtype=torch.float64)
        self._squares = 0.0

    def add(self, rows: Tensor) -> None:
        offset = rows - self._origin
        self.n += len(rows)
        self._sum += offset.sum(dim=0, dtype=torch.float64)
        self._squares += offset.square().sum(dtype=torch.float64).item()

    @property
    def mean_of_pairs(self) -> float:
        """0 where there is no pair."""
        if self.n < 2:
            return 0.0
        total = self._squares - (self._sum @ self._sum).item() / self.n
        return max(0.0, 2 * total / (self.n - 1))


def mean_of_pairs(images: Tensor) -> float:
    """The mean LPIPS distance over all pairs of uint8 images (N, 3, H, W)."""
    if len(images) < 2:
        raise UserError(f"diversity needs at least 2 images; there are {len(images)}")
    spread = None
    for rows in _features(images, "LPIPS"):
        spread = spread or Spread(rows[0])
        spread.add(rows)
    assert spread is not None
    return spread.mean_of_pairs


def balanced_diversity(centres: Tensor, images: Tensor) -> float:
    """B-LPIPS of uint8 images around uint8 centres, which are real images.

    A centre with fewer than two images around it adds nothing. The authors take the first images around each centre;
    here all pairs around it count.
    """
    if centres.shape[1:] != images.shape[1:]:
        sizes = [f"{side.shape[3]} x {side.shape[2]}" for side in (centres, images)]
        raise UserError(f"B-LPIPS compares real with generated images of one size; these are {' and '.join(sizes)}")
    anchors = torch.cat(list(_features(centres, "LPIPS of real images")))  # (K, dims)
    around = [Spread(anchor) for anchor in anchors]
    for rows in _features(images, "LPIPS"):
        nearest = torch.stack([(rows - anchor).square().sum(dim=1) for anchor in anchors]).argmin(dim=0)
        for centre in nearest.unique().tolist():
            around[centre].add(rows[nearest == centre])
    shares = [spread.n / len(images) + SMOOTHING for spread in around]
    return sum(-p * math.log10(p) * spread.mean_of_pairs for p, spread in zip(shares, around, strict=True))


def _features(images: Tensor, title: str) -> Iterator[Tensor]:
    """Batches of vectors whose squared distances are LPIPS, on the network's device."""
    network = load_lpips()
    with progress_bar(total=len(images), desc=title, unit="img", leave=False, delay=2) as bar:
        for batch in images.split(network.batch_for(images.shape[-1])):
            yield network.features(batch)
            bar.update(len(batch))
