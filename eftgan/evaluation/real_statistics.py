"""Statistics of real images: computed once, kept in a file named by what they depend on."""

import hashlib
import json
import warnings
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from eftgan.data.augmentation import centre_crop
from eftgan.data.collection import ImageCollection
from eftgan.data.processes import ALONE, Processes
from eftgan.data.spread import spread
from eftgan.errors import UserError
from eftgan.evaluation.features import Extractor
from eftgan.evaluation.statistics import KEEP_FEATURES, FeatureStatistics, spread_rows
from eftgan.files import remove_leftovers
from eftgan.progress import progress_bar
from eftgan.tensors import tensors_digest, write_tensors

BLOCK = 64  # images: who computes a block changes nothing about its bits, so blocks are what processes share out


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
    processes: Processes = ALONE,
    call_others: Callable[[], None] = lambda: None,
    progress: bool = True,
    title: str = "real images",
) -> FeatureStatistics:
    """Statistics of `data`, centre-cropped to `size`; read from `cache` (a folder) where they are known.

    Several processes share the work: the first has the cache, and where nothing is known there it has
    `call_others` bring the others to this function, without a cache; see `collect_statistics`.
    """
    key = reference_key(data, extractor, size, count)
    if key.count < 2:
        raise UserError(f"a distance needs at least 2 images on each side; '{title}' has {key.count}")
    known = None if cache is None else read_statistics(statistics_path(cache, key.digest), key)
    if known is not None:
        return known
    call_others()
    crops, keep = evenly_spaced_crops(data, key.count, size), set(spread_rows(key.count))
    statistics = collect_statistics(
        crops, key.count, extractor, keep=keep, processes=processes, progress=progress, title=title
    )
    if cache is not None:
        write_statistics(statistics_path(cache, key.digest), statistics, key)
    return statistics


def evenly_spaced_crops(data: ImageCollection, count: int, size: int) -> Callable[[range], Tensor]:
    """What gives the centre crops of a range of `count` images of a collection: for `collect_statistics`."""
    places = spread(len(data), count).tolist()
    return lambda block: torch.stack([centre_crop(data[i], size) for i in places[block.start : block.stop]])


def collect_statistics(
    images: Callable[[range], Tensor],
    count: int,
    extractor: Extractor,
    *,
    keep: Collection[int] = range(KEEP_FEATURES),
    processes: Processes = ALONE,
    progress: bool = True,
    title: str = "images",
) -> FeatureStatistics:
    """Statistics of `count` images, with a progress bar; `images` gives those of a range, uint8 (N, 3, H, W).

    Several processes take blocks of images in turn. The first gathers the features in the images' order, so that its
    statistics are the same to the bit however many processes there are; the others get empty ones.
    """
    statistics = FeatureStatistics(extractor.dims, keep=keep)
    blocks = [range(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
    with progress_bar(total=count, desc=title, unit="img", show=progress and processes.is_first, leave=False) as bar:
        for first in range(0, len(blocks), processes.count):
            turn = blocks[first : first + processes.count]
            own = [extractor(images(block)) for block in turn[processes.rank : processes.rank + 1]]
            gathered = [rows for features in processes.exchange(own) for rows in features]
            if processes.is_first:
                for rows in gathered:
                    statistics.update(rows)
            bar.update(sum(map(len, turn)))
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
