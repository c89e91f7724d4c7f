"""Statistics of image features, gathered batch by batch: what metrics are computed from."""

from collections.abc import Collection

import torch
from torch import Tensor

from eftgan.data.spread import spread
from eftgan.errors import UserError

KEEP_FEATURES = 5000  # rows kept for metrics that need single images: 40 MB at 2048 dims
FOLD_ROWS = 1024  # rows gathered before one product updates the covariance


def spread_rows(count: int) -> list[int]:
    """Which of `count` features to keep: evenly spread, since collections are often sorted."""
    return spread(count, KEEP_FEATURES).tolist()


class FeatureStatistics:
    """Streaming mean and covariance in float64, and the features themselves at the positions `keep` of the stream.

    dims 0: the features are the images themselves, uint8 (N, 3, H, W), of which there are no moments.
    """

    def __init__(self, dims: int, *, keep: Collection[int] = range(KEEP_FEATURES)):
        self.dims, self.keep = dims, keep
        self._n = 0
        self._mean = torch.zeros(dims, dtype=torch.float64)
        self._scatter = torch.zeros(dims, dims, dtype=torch.float64)  # sum of squared deviations
        self._kept: list[Tensor] = []
        self._pending: list[Tensor] = []

    @classmethod
    def from_moments(cls, mean: Tensor, covariance: Tensor, n: int) -> "FeatureStatistics":
        """Statistics known only by their moments, as in a file of pytorch-fid."""
        statistics = cls(len(mean), keep=())
        statistics._n = n
        statistics._mean = mean.double()
        statistics._scatter = covariance.double() * (n - 1)
        return statistics

    @classmethod
    def from_features(cls, features: Tensor, *, keep: Collection[int] = range(KEEP_FEATURES)) -> "FeatureStatistics":
        """Statistics of features (N, dims), or of images, that are all at hand."""
        statistics = cls(features.shape[1] if features.ndim == 2 else 0, keep=keep)
        statistics.update(features)
        return statistics

    def update(self, features: Tensor) -> None:
        """Add a batch of features (N, dims), or of images."""
        self._check_shape(features)
        features = features.detach().cpu()
        if not features.isfinite().all():
            raise UserError("features are not finite: the images or the extractor's weights are damaged")
        first = self.n
        kept = [row for row in range(len(features)) if first + row in self.keep]
        self._kept.append(features[kept].float() if self.dims else features[kept])
        self._pending.append(features.flatten(1)[:, : self.dims].double())
        if sum(map(len, self._pending)) >= FOLD_ROWS:
            self._fold()

    def merge(self, other: "FeatureStatistics") -> None:
        """Add what another process gathered; the result is the same as of one pass over both."""
        if other.dims != self.dims:
            raise ValueError(f"statistics of {other.dims} dims do not merge with {self.dims}")
        self._fold()
        other._fold()
        self._add(other._n, other._mean, other._scatter)
        self._kept.append(other.features)

    @property
    def n(self) -> int:
        """How many images."""
        return self._n + sum(map(len, self._pending))

    @property
    def mean(self) -> Tensor:
        """(dims,), float64."""
        self._fold()
        return self._mean

    @property
    def covariance(self) -> Tensor:
        """(dims, dims), float64, with N - 1 in the denominator as numpy's and pytorch-fid's."""
        self._fold()
        return self._scatter / (self._n - 1)

    @property
    def features(self) -> Tensor:
        """The kept rows (at most as many as `keep`, dims), float32; or the kept images, uint8."""
        kept = [rows for rows in self._kept if len(rows)]
        return torch.cat(kept) if kept else torch.empty(0, self.dims)

    def tensors(self) -> dict[str, Tensor]:
        """What a file holds."""
        self._fold()
        return {
            "n": torch.tensor(self._n),
            "mean": self._mean,
            "scatter": self._scatter,
            "features": self.features,
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "FeatureStatistics":
        """The counterpart of `tensors`."""
        statistics = cls(len(tensors["mean"]))
        statistics._n = int(tensors["n"])
        statistics._mean, statistics._scatter = tensors["mean"], tensors["scatter"]
        statistics._kept = [tensors["features"]]
        return statistics

    def _check_shape(self, features: Tensor) -> None:
        if features.ndim != (2 if self.dims else 4) or (self.dims and features.shape[1] != self.dims):
            raise ValueError(f"expected features (N, {self.dims or '3, H, W'}), got {tuple(features.shape)}")
        if not self.dims and self._kept and features.shape[1:] != self._kept[0].shape[1:]:
            raise UserError("images of different sizes: what is measured on images themselves needs them of one size")

    def _fold(self) -> None:
        if self._pending:
            rows = torch.cat(self._pending)
            self._pending = []
            mean = rows.mean(dim=0)
            rows -= mean
            self._add(len(rows), mean, rows.T @ rows)

    def _add(self, n: int, mean: Tensor, scatter: Tensor) -> None:
        # Chan et al. 1983: deviations about each part's own mean, so nothing cancels
        total = self._n + n
        if total == 0:
            return
        delta = mean - self._mean
        self._scatter = self._scatter + scatter
        self._scatter.addr_(delta, delta, alpha=self._n * n / total)
        self._mean = self._mean + delta * (n / total)
        self._n = total
