"""Statistics of real images: computed once, kept in a file named by what they depend on."""

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from eftgan.data.augmentation import centre_crop
from eftgan.data.collection import ImageCollection
from eftgan.data.spread import spread
from eftgan.errors import UserError
from eftgan.evaluation.features import Extractor
from eftgan.evaluation.statistics import KEEP_FEATURES, FeatureStatistics, spread_rows
from eftgan.files import remove_leftovers
from eftgan.progress import progress_bar
from eftgan.tensors import tensors_digest, write_tensors

BATCH = 50


@dataclass(frozen=True)
class ReferenceKey:
    """Everything that the statistics of a collection depend on."""

    data: str
    size: int
    count: int
    extractor: str
    weights: str

    @property
    def text(self) -> str:
        """As the cache file holds it; large collections say which features are kept, as older files kept the first."""
        rows = {"rows": "spread"} if self.count > KEEP_FEATURES else {}
        return json.dumps(asdict(self) | rows, sort_keys=True)

    @property
    def digest(self) -> str:
        """The name of the cache file, and the reference digest that score lines carry."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:20]


def reference_key(data: ImageCollection, extractor: Extractor, size: int, count: int | None = None) -> ReferenceKey:
    """The key of a collection's statistics; `count` none means every image."""
    count = len(data) if count is None else min(count, len(data))
    return ReferenceKey(data.digest, size, count, extractor.name, extractor.digest)


def reference_statistics(
    data: ImageCollection,
    extractor: Extractor,
    size: int,
    *,
    cache: Path | None = None,
    count: int | None = None,
    rank: int = 0,
    processes: int = 1,
    barrier: Callable[[], None] = lambda: None,
    progress: bool = True,
    title: str = "real images",
) -> FeatureStatistics:
    """Statistics of `data`, centre-cropped to `size`; read from `cache` (a folder) where they are known.

    Several processes share the work: each calls this with its own `rank` and one common `barrier`, computes
    its share and leaves it in the cache folder; all return the same merged statistics.
    """
    key = reference_key(data, extractor, size, count)
    if key.count < 2:
        raise UserError(f"a distance needs at least 2 images on each side; '{title}' has {key.count}")
    if processes > 1 and cache is None:
        raise ValueError("several processes share their work through the cache folder: give one")
    known = None if cache is None else read_statistics(statistics_path(cache, key.digest), key)
    barrier()  # nobody writes before everybody has looked
    if known is not None:
        return known
    share = range(rank * key.count // processes, (rank + 1) * key.count // processes)
    images = (centre_crop(data[i], size) for i in spread(len(data), key.count)[share.start : share.stop].tolist())
    keep = {row - share.start for row in spread_rows(key.count)}  # those of other shares lie outside of this one
    statistics = collect_statistics(images, extractor, total=len(share), keep=keep, progress=progress, title=title)
    if cache is None:
        return statistics
    if processes > 1:
        statistics = _merge_shares(statistics, cache, key, rank, processes, barrier)
    if rank == 0:
        write_statistics(statistics_path(cache, key.digest), statistics, key)
    return statistics


def collect_statistics(
    images: Iterable[Tensor],
    extractor: Extractor,
    *,
    total: int | None = None,
    keep: Collection[int] = range(KEEP_FEATURES),
    progress: bool = True,
    title: str = "images",
) -> FeatureStatistics:
    """Statistics of a stream of equally large uint8 images (3, H, W), with a progress bar."""
    statistics = FeatureStatistics(extractor.dims, keep=keep)
    batch: list[Tensor] = []
    with progress_bar(total=total, desc=title, unit="img", show=progress, leave=False) as bar:
        for image in images:
            batch.append(image)
            if len(batch) == BATCH:
                statistics.update(extractor(torch.stack(batch)))
                bar.update(len(batch))
                batch = []
        if batch:
            statistics.update(extractor(torch.stack(batch)))
            bar.update(len(batch))
    return statistics


def write_statistics(path: Path, statistics: FeatureStatistics, key: ReferenceKey) -> None:
    """Write the statistics whole or not at all."""
    tensors = statistics.tensors()
    metadata = {"key": key.text, "content": tensors_digest(tensors)}
    remove_leftovers(path.parent)
    write_tensors(path, tensors, metadata)


def kept_statistics(cache: Path, digest: str | None) -> FeatureStatistics | None:
    """The statistics of images that may be gone, by the digest that score lines carry."""
    return read_statistics(statistics_path(cache, digest)) if digest else None


def statistics_path(cache: Path, digest: str) -> Path:
    """Where the statistics of a reference are kept, by the digest of its key."""
    return Path(cache) / f"{digest}.safetensors"


def read_statistics(path: Path, key: ReferenceKey | None = None) -> FeatureStatistics | None:
    """The statistics in a file, or none where it is missing, damaged or of something else than `key`."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as handle:
            metadata = handle.metadata() or {}
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (not a dict)
        if key is not None and metadata.get("key") != key.text:
            raise ValueError("made for other data")
        if metadata.get("content") != tensors_digest(tensors):
            raise ValueError("content changed")
        return FeatureStatistics.from_tensors(tensors)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        warnings.warn(f"cached statistics {path} are damaged ({error}); computing them again", stacklevel=2)
        return None


def _merge_shares(
    own: FeatureStatistics,
    cache: Path,
    key: ReferenceKey,
    rank: int,
    processes: int,
    barrier: Callable[[], None],
) -> FeatureStatistics:
    shares = [cache / f"{key.digest}.{i}-of-{processes}.safetensors" for i in range(processes)]
    write_statistics(shares[rank], own, key)
    barrier()
    merged = FeatureStatistics(own.dims)
    for share in shares:
        part = read_statistics(share, key)
        if part is None:
            raise UserError(f"{share} is missing or damaged: do all processes see the same folder {cache}?")
        merged.merge(part)
    barrier()  # nobody removes a share before everybody has read it
    shares[rank].unlink()
    return merged
